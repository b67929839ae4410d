//! A clustering of a file of points: as JSON, as csv files, as text for a terminal, and as a page.

mod page;
mod text;
pub(crate) mod tree;

#[cfg(test)]
mod fabricated;

pub use page::page;
pub use text::text;

use crate::clustering::convex::{Path, Weights};
use crate::clustering::{Clustering, Found, Points, quality};
use crate::data::points::PointTable;
use crate::disk::{comma_separated, json_text, write_atomically};
use crate::error::Result;
use crate::num::distance;
use crate::report::table::Table;
use crate::text::{counted, significant};
use serde::Serialize;
use text::MOST_ROWS;
use tree::FusionTree;

/// The files of a clustering's folder.
pub const FILES: [&str; 6] = ["labels.csv", "centres.csv", "path.csv", "tree.csv", "report.html", "summary.json"];

/// A clustering with everything that is reported about it.
pub struct ClusteringRecord<'a> {
    /// Where the points were read from.
    pub source: String,
    /// The file's columns and names.
    pub table: &'a PointTable,
    /// The points as they were clustered.
    pub points: Points<'a>,
    /// What was found.
    pub found: &'a Found,
    /// Its numbers.
    pub summary: ClusteringSummary,
}

/// summary.json of a clustering. What does not apply, or is not finite, is absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClusteringSummary {
    /// Name of the algorithm.
    pub method: String,
    /// Number of clusters.
    pub clusters: usize,
    /// The cluster of every point; null for one that fits none and is set aside.
    pub labels: Vec<Option<usize>>,
    /// The mean of every cluster's points, in the units of the file.
    pub centres: Vec<Vec<f64>>,
    /// λ of convex clustering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lambda: Option<f64>,
    /// The objective of convex clustering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primal: Option<f64>,
    /// Its lower bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dual: Option<f64>,
    /// Their difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<f64>,
    /// The least distance of two centres over the largest distance of a point to its centre.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separability: Option<f64>,
    /// How long the clustering took.
    pub seconds: f64,
    /// Every λ of the path, with its number of clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Vec<PathStep>>,
    /// The clustered columns.
    pub columns: Vec<String>,
    /// Number of points of every cluster.
    pub sizes: Vec<usize>,
    /// Distance of every cluster's farthest point from its centre, in the units of clustering.
    pub radii: Vec<f64>,
    /// Pairs that the certificate proves neither together nor apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undecided: Option<usize>,
    /// Separability from which k-means provably finds such clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separability_kmeans: Option<f64>,
    /// Separability from which convex clustering provably does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separability_convex: Option<f64>,
    /// Interval of λ in which convex clustering with uniform weights provably finds these clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<[f64; 2]>,
    /// How sure the number of clusters is: `certain`, `likely` or `unsure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sureness: Option<String>,
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sureness_reason: Option<String>,
    /// Remarks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Whether columns were standardised before clustering.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub standardised: bool,
    /// The version of Kinfolk that wrote it.
    pub version: String,
}

impl ClusteringSummary {
    /// A row per cluster after the `first` column, with some coordinates of its centre; `rest` heads the others.
    fn table(&self, first: Table, coordinates: usize, rest: Option<&str>) -> Table {
        let shown = self.columns.len().min(coordinates);
        // Radii are distances among the points as they were clustered.
        let radius = if self.standardised { "standardised radius" } else { "radius" };
        let mut table = first.numbers("points").numbers(radius);
        for column in &self.columns[..shown] {
            table = table.numbers(format!("centre {column}"));
        }
        if let Some(rest) = rest.filter(|_| shown < self.columns.len()) {
            table = table.words(rest);
        }
        for cluster in 0..self.clusters.min(MOST_ROWS) {
            let mut row = vec![cluster.to_string(), self.sizes[cluster].to_string()];
            row.push(significant(self.radii[cluster], 4));
            row.extend(self.centres[cluster][..shown].iter().map(|value| significant(*value, 4)));
            table.push(row);
        }
        table
    }
}

/// One λ of a path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PathStep {
    pub(crate) lambda: f64,
    pub(crate) clusters: usize,
}

impl<'a> ClusteringRecord<'a> {
    /// The record of what was found.
    pub fn of(source: String, table: &'a PointTable, method: &str, found: &'a Found, seconds: f64) -> Result<Self> {
        let points = table.points()?;
        let (values, clustering) = found.members(points);
        let members = Points::new(&values, points.dimension())?;
        let finite = |value: f64| Some(value).filter(|value| value.is_finite());
        let certificate = found.certificate.as_ref();
        let centres = (0..clustering.clusters()).map(|cluster| table.in_units(clustering.centre(cluster)));
        let several = clustering.clusters() > 1;
        let summary = ClusteringSummary {
            method: method.to_string(),
            clusters: clustering.clusters(),
            labels: found.labels(),
            centres: centres.collect(),
            lambda: found.lambda.and_then(finite),
            primal: certificate.and_then(|certificate| finite(certificate.primal)),
            dual: certificate.and_then(|certificate| finite(certificate.dual)),
            gap: certificate.and_then(|certificate| finite(certificate.gap)),
            separability: quality::separability(members, &clustering).and_then(finite),
            seconds,
            path: found.path.as_ref().map(|path| steps(path).collect()),
            columns: table.columns.clone(),
            sizes: clustering.sizes(),
            radii: radii(members, &clustering),
            undecided: certificate.map(|certificate| certificate.undecided),
            separability_kmeans: several.then(|| quality::separability_for_kmeans(&clustering)),
            separability_convex: several.then(|| quality::separability_for_convex(&clustering)),
            recovery: recovery(members, &clustering, found.weights.as_ref()),
            sureness: found.sureness.as_ref().map(|sureness| sureness.word.to_string()),
            sureness_reason: found.sureness.as_ref().map(|sureness| sureness.reason.clone()),
            notes: found.notes.clone(),
            standardised: table.scales.is_some(),
            version: env!("CARGO_PKG_VERSION").to_string(),
        };
        Ok(Self { source, table, points, found, summary })
    }

    /// Writes all files into a folder, summary.json last: a folder without it is not finished.
    pub fn write(&self, folder: &std::path::Path) -> Result<()> {
        let write = |name: &str, bytes: &[u8]| write_atomically(&folder.join(name), bytes);
        write("labels.csv", &self.labels_csv()?)?;
        write("centres.csv", &self.centres_csv()?)?;
        if let Some(path) = &self.found.path {
            write("path.csv", &path_csv(path)?)?;
            write("tree.csv", &tree_csv(path, self.summary.labels.len())?)?;
        }
        write("report.html", page(self).as_bytes())?;
        write("summary.json", json_text(&self.summary)?.as_bytes())
    }

    fn labels_csv(&self) -> Result<Vec<u8>> {
        let labels = self.summary.labels.iter().enumerate();
        // A point that is set aside has no cluster.
        let cluster = |label: &Option<usize>| label.map_or(String::new(), |label| label.to_string());
        let rows = labels.map(|(point, label)| [self.table.name(point), cluster(label)]);
        comma_separated("labels.csv", ["point", "cluster"], rows)
    }

    fn centres_csv(&self) -> Result<Vec<u8>> {
        let header = ["cluster", "points"].into_iter().chain(self.table.columns.iter().map(String::as_str));
        let clusters = self.summary.centres.iter().zip(&self.summary.sizes).enumerate();
        let rows = clusters.map(|(cluster, (centre, size))| {
            [cluster.to_string(), size.to_string()].into_iter().chain(centre.iter().map(f64::to_string))
        });
        comma_separated("centres.csv", header, rows)
    }
}

fn steps(path: &Path) -> impl Iterator<Item = PathStep> {
    path.steps.iter().map(|step| PathStep { lambda: step.lambda, clusters: step.clusters })
}

fn path_csv(path: &Path) -> Result<Vec<u8>> {
    let rows = steps(path).map(|step| [step.lambda.to_string(), step.clusters.to_string()]);
    comma_separated("path.csv", ["lambda", "clusters"], rows)
}

/// One row per node: points from 1 on, then joins. A node without a parent was never joined.
fn tree_csv(path: &Path, points: usize) -> Result<Vec<u8>> {
    let tree = FusionTree::of(path, points, points);
    let nodes = points + tree.joins.len();
    // Leaves stand in drawing order; in the file they are numbered as the points.
    let number = |node: usize| if node < points { tree.leaves[node][0] } else { node };
    let mut parent = vec![String::new(); nodes];
    let mut size = vec![1; nodes];
    for (join, node) in tree.joins.iter().zip(points..) {
        size[node] = join.children.iter().map(|child| size[number(*child)]).sum();
        join.children.iter().for_each(|child| parent[number(*child)] = (node + 1).to_string());
    }
    let rows = (0..nodes).map(|node| {
        let join = node.checked_sub(points).map(|join| &tree.joins[join]);
        let lambda = join.map_or(String::new(), |join| path.steps[join.step].lambda.to_string());
        [(node + 1).to_string(), parent[node].clone(), lambda, size[node].to_string()]
    });
    comma_separated("tree.csv", ["node", "parent", "lambda", "points"], rows)
}

fn radii(points: Points, clustering: &Clustering) -> Vec<f64> {
    let mut radii = vec![0.0_f64; clustering.clusters()];
    for (point, &label) in clustering.labels.iter().enumerate() {
        radii[label] = radii[label].max(distance(points.row(point), clustering.centre(label)));
    }
    radii
}

/// Upper bound on the cost of a recovery interval, in numbers read; beyond, it would take too long.
const MOST_WORK: usize = 1 << 34;

fn recovery(points: Points, clustering: &Clustering, weights: Option<&Weights>) -> Option<[f64; 2]> {
    // It is known for uniform weights only.
    if weights.is_some_and(|weights| *weights != Weights::Uniform) {
        return None;
    }
    let pairs: usize = clustering.sizes().iter().map(|size| size * (size - 1) / 2).sum();
    if pairs.saturating_mul(points.dimension()) > MOST_WORK {
        return None;
    }
    let interval = quality::recovery_interval(points, clustering);
    Some([interval.lower, interval.upper]).filter(|interval| interval.iter().all(|bound| bound.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_files_by_hand() {
        let (table, found) = fabricated::two_pairs();
        let record = ClusteringRecord::of("p.csv".into(), &table, "clusterpath", &found, 0.5).unwrap();
        let text = |bytes: Result<Vec<u8>>| String::from_utf8(bytes.unwrap()).unwrap();
        assert_eq!(text(record.labels_csv()), "point,cluster\na,0\nb,1\nc,1\n\"d, e\",0\n");
        assert_eq!(text(record.centres_csv()), "cluster,points,x,y\n0,2,0,1\n1,2,10,0.5\n");
        let path = found.path.as_ref().unwrap();
        assert_eq!(text(path_csv(path)), "lambda,clusters\n0.25,4\n0.5,3\n1,2\n4,1\n");
        assert_eq!(
            text(tree_csv(path, 4)),
            "node,parent,lambda,points\n1,6,,1\n2,5,,1\n3,5,,1\n4,6,,1\n5,7,0.5,2\n6,7,1,2\n7,,4,4\n"
        );
        assert_eq!(record.summary.radii, [1.0, 0.5]);
    }

    #[test]
    fn what_is_not_finite_or_does_not_apply_is_absent() {
        let (table, mut found) = fabricated::two_pairs();
        (found.lambda, found.path, found.sureness) = (Some(f64::INFINITY), None, None);
        found.notes.clear();
        let record = ClusteringRecord::of("p.csv".into(), &table, "convex", &found, 0.5).unwrap();
        let json = serde_json::to_value(&record.summary).unwrap();
        let fields = json.as_object().unwrap();
        assert!(fields.values().all(|value| !value.is_null()));
        for absent in ["lambda", "path", "sureness", "standardised", "notes"] {
            assert!(!fields.contains_key(absent), "{absent}");
        }
        assert_eq!((&json["clusters"], &json["gap"]), (&2.into(), &0.0.into()));
    }
}
