//! The page of a clustering: its content is chosen and counted here, and drawn by the page's own script.

use super::super::html::{assemble, shortened};
use super::text::facts;
use super::tree::Join;
use super::*;
use crate::clustering::Plane;

const SCRIPT: &str = include_str!("page.js");

/// Upper bound on the points drawn in the plane; more would cover each other.
const MOST_POINTS: usize = 4000;
/// Upper bound on the points followed along a path.
const MOST_TRAJECTORIES: usize = 1000;
/// Upper bound on the values of λ at which they are drawn.
const MOST_STEPS: usize = 60;
/// Upper bound on the leaves of a tree; more cannot be told apart.
const MOST_LEAVES: usize = 200;
const MOST_COORDINATES: usize = 8;

/// The report of a clustering as one self-contained page.
pub fn page(record: &ClusteringRecord) -> String {
    assemble(&Content::of(record), SCRIPT)
}

#[derive(Serialize)]
struct Content<'a> {
    version: &'a str,
    source: &'a str,
    method: &'a str,
    points: usize,
    columns: &'a [String],
    clusters: usize,
    facts: Vec<(&'static str, String)>,
    table: Table,
    notes: &'a [String],
    plane: PlanePicture,
    path: Option<PathPicture>,
}

/// Points and centres in the two principal directions.
#[derive(Serialize)]
struct PlanePicture {
    points: Vec<Shown>,
    centres: Vec<[Option<f64>; 2]>,
    /// Share of the variance of the points that lies in the plane.
    share: Option<f64>,
}

#[derive(Serialize)]
struct Shown {
    name: String,
    /// Absent where the point is set aside.
    cluster: Option<usize>,
    place: [Option<f64>; 2],
}

/// A number of clusters and the λ over which it lasts.
#[derive(Serialize)]
struct Level {
    clusters: usize,
    from: f64,
    to: f64,
}

#[derive(Serialize)]
struct PathPicture {
    steps: Vec<PathStep>,
    levels: Vec<Level>,
    lambda: Option<f64>,
    followed: Vec<usize>,
    trajectories: Vec<Trajectory>,
    tree: Option<TreePicture>,
}

/// One point along the followed steps.
#[derive(Serialize)]
struct Trajectory {
    name: String,
    /// Absent where the point is set aside.
    cluster: Option<usize>,
    /// The point itself, its solution at λ = 0.
    start: [Option<f64>; 2],
    places: Vec<[Option<f64>; 2]>,
}

#[derive(Serialize)]
struct TreePicture {
    leaves: Vec<Leaf>,
    joins: Vec<Join>,
    came_apart: bool,
}

#[derive(Serialize)]
struct Leaf {
    name: String,
    size: usize,
    /// Absent where its points are in several clusters, or set aside.
    cluster: Option<usize>,
}

/// At most `most` of the numbers below `count`, evenly spaced, with the first and the last.
fn spaced(count: usize, most: usize) -> Vec<usize> {
    if count <= most {
        return (0..count).collect();
    }
    (0..most).map(|place| place * (count - 1) / (most - 1)).collect()
}

fn drawn(place: &[f64; 2]) -> [Option<f64>; 2] {
    place.map(shortened)
}

impl<'a> Content<'a> {
    fn of(record: &'a ClusteringRecord) -> Self {
        let summary = &record.summary;
        let points = record.points;
        let plane = Plane::of(points);
        Self {
            version: &summary.version,
            source: &record.source,
            method: &summary.method,
            points: summary.labels.len(),
            columns: &summary.columns,
            clusters: summary.clusters,
            facts: facts(record),
            table: summary.table(Table::new().words("cluster"), MOST_COORDINATES, None),
            notes: &summary.notes,
            plane: PlanePicture::of(record, points, &plane),
            path: record.found.path.as_ref().map(|path| PathPicture::of(record, points, &plane, path)),
        }
    }
}

impl PlanePicture {
    fn of(record: &ClusteringRecord, points: Points, plane: &Plane) -> Self {
        let clustering = &record.found.clustering;
        let shown = spaced(points.count(), MOST_POINTS).into_iter().map(|point| Shown {
            name: record.table.name(point),
            cluster: record.summary.labels[point],
            place: drawn(&plane.project(points.row(point))),
        });
        let centres = (0..clustering.clusters()).map(|cluster| drawn(&plane.project(clustering.centre(cluster))));
        Self { points: shown.collect(), centres: centres.collect(), share: share(points, plane) }
    }
}

/// The part of the squared distances from the mean that lies in the plane.
fn share(points: Points, plane: &Plane) -> Option<f64> {
    let (mut within, mut all) = (0.0, 0.0);
    for point in 0..points.count() {
        let [a, b] = plane.project(points.row(point));
        within += a * a + b * b;
        all += plane.squared_distance_from_mean(points.row(point));
    }
    Some(within / all).filter(|share| share.is_finite()).map(|share| share.min(1.0))
}

impl PathPicture {
    fn of(record: &ClusteringRecord, points: Points, plane: &Plane, path: &Path) -> Self {
        let steps = record.summary.path.clone().unwrap_or_default();
        let labels = &record.summary.labels;
        let levels = path.levels().into_iter().map(|level| {
            let [from, to] = level.lambda;
            Level { clusters: level.clusters, from, to }
        });
        let followed = spaced(path.steps.len(), MOST_STEPS);
        let trajectories = spaced(labels.len(), MOST_TRAJECTORIES).into_iter().map(|point| Trajectory {
            name: record.table.name(point),
            cluster: labels[point],
            start: drawn(&plane.project(points.row(point))),
            places: followed.iter().filter_map(|step| path.steps[*step].plane.get(point).map(drawn)).collect(),
        });
        Self {
            levels: levels.collect(),
            lambda: record.summary.lambda,
            trajectories: trajectories.collect(),
            tree: TreePicture::of(record, path),
            followed,
            steps,
        }
    }
}

impl TreePicture {
    /// `None` where the points never come together in few enough groups.
    fn of(record: &ClusteringRecord, path: &Path) -> Option<Self> {
        let labels = &record.summary.labels;
        let FusionTree { leaves, joins, came_apart } = FusionTree::of(path, labels.len(), MOST_LEAVES);
        if leaves.len() > MOST_LEAVES {
            return None;
        }
        let leaves = leaves.iter().map(|points| Leaf {
            name: record.table.name(points[0]),
            size: points.len(),
            cluster: labels[points[0]].filter(|cluster| points.iter().all(|point| labels[*point] == Some(*cluster))),
        });
        Some(Self { leaves: leaves.collect(), joins, came_apart })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fabricated;
    use super::*;
    use crate::data::points::PointTable;

    #[test]
    fn large_paths_are_thinned_and_keep_their_ends() {
        assert_eq!(spaced(3, 60), [0, 1, 2]);
        let steps = spaced(1000, MOST_STEPS);
        assert_eq!((steps.len(), steps[0], steps[59]), (60, 0, 999));
        assert!(steps.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn standardised_radii_are_called_so() {
        let (mut table, found) = fabricated::two_pairs();
        let headings = |table: &PointTable| {
            let record = ClusteringRecord::of("p.csv".into(), table, "clusterpath", &found, 0.5).unwrap();
            let content = Content::of(&record);
            (serde_json::to_string(&content.table).unwrap(), content.facts[0].0)
        };
        let (plain, first) = headings(&table);
        assert!(plain.contains("\"radius\"") && first != "standardised", "{plain}");
        table.standardise();
        let (scaled, first) = headings(&table);
        assert!(scaled.contains("\"standardised radius\"") && first == "standardised", "{scaled}");
    }

    #[test]
    fn the_picture_shows_all_points_of_a_small_clustering() {
        let (table, found) = fabricated::two_pairs();
        let record = ClusteringRecord::of("</script>".into(), &table, "clusterpath", &found, 0.5).unwrap();
        let content = Content::of(&record);
        assert_eq!((content.plane.points.len(), content.plane.centres.len()), (4, 2));
        assert!((content.plane.share.unwrap() - 1.0).abs() < 1e-12);
        let path = content.path.unwrap();
        assert_eq!((path.trajectories.len(), path.trajectories[0].places.len()), (4, 4));
        assert_eq!(path.tree.unwrap().leaves.iter().map(|leaf| leaf.cluster).collect::<Vec<_>>().len(), 4);
        let page = page(&record);
        assert!(page.contains("\\u003c/script>") && page.contains("\"d, e\""));
    }
}
