//! The common entry point: any algorithm by name, and its result.

use super::auto::Decision;
use super::convex::{Certificate, Convex};
use super::number::{Choice, choose_by_path, choose_by_silhouette};
use super::quality::recovery_interval;
use super::*;

/// A clustering algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// `kmeans++`: Lloyd's iteration from k-means++ starts.
    KMeans,
    /// `spectral`: k-means in the space of the top singular vectors, refined in the full one.
    Spectral,
    /// `gradient`: gradient descent on the centres.
    Gradient,
    /// `convex`: convex clustering at one λ.
    Convex,
    /// `clusterpath`: convex clustering over a range of λ, and the level that lasts longest.
    Clusterpath,
    /// `auto`: finds the number of clusters and its certainty.
    Auto,
}

impl Algorithm {
    pub(crate) const ALL: &'static [(&'static str, Algorithm)] = &[
        ("kmeans++", Algorithm::KMeans),
        ("spectral", Algorithm::Spectral),
        ("gradient", Algorithm::Gradient),
        ("convex", Algorithm::Convex),
        ("clusterpath", Algorithm::Clusterpath),
        ("auto", Algorithm::Auto),
    ];
}

/// A request for a clustering.
#[derive(Clone)]
pub struct Request {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Number of clusters; where absent the k-means family chooses it by silhouette.
    pub clusters: Option<usize>,
    /// λ of convex clustering; where absent `convex` takes the middle of the longest-lived level of the path.
    pub lambda: Option<f64>,
    /// Weights of convex clustering.
    pub weights: Weights,
    /// Number of starts of the k-means family.
    pub starts: usize,
    /// Number of values of λ on a path.
    pub path_values: usize,
    /// Key of the draws.
    pub key: Key,
}

impl Request {
    pub(crate) fn new(algorithm: Algorithm, clusters: Option<usize>, key: Key) -> Self {
        Self { algorithm, clusters, lambda: None, weights: Weights::Uniform, starts: 10, path_values: 20, key }
    }
}

impl Default for Request {
    fn default() -> Self {
        Self::new(Algorithm::Auto, None, Key::new(0))
    }
}

/// How certain the number of clusters is.
#[derive(Debug, Clone, PartialEq)]
pub struct Sureness {
    /// `certain`, `likely` or `unsure`.
    pub word: &'static str,
    /// The reason.
    pub reason: String,
}

/// The result of a request.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The clustering.
    pub clustering: Clustering,
    /// The points that `auto` set aside, ascending: they fit no cluster, and are labelled with the nearest one.
    pub aside: Vec<usize>,
    /// The λ it belongs to, of convex clustering.
    pub lambda: Option<f64>,
    /// The weights of convex clustering.
    pub weights: Option<Weights>,
    /// Primal, dual and gap, of convex clustering.
    pub certificate: Option<Certificate>,
    /// The mean silhouette for every number of clusters tried, where that decided.
    pub silhouettes: Vec<(usize, f64)>,
    /// The path, where one was computed.
    pub path: Option<Path>,
    /// How certain the number of clusters is, where it was not given.
    pub sureness: Option<Sureness>,
    /// Remarks.
    pub notes: Vec<String>,
}

/// The progress of a search.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    /// Description of the stage.
    pub what: &'static str,
    /// Steps done.
    pub done: usize,
    /// Steps in all.
    pub total: usize,
}

/// Called with the progress of a search; an error ends it.
pub type Progress<'a> = &'a mut dyn FnMut(Stage) -> Result<()>;

/// Above this number of points the path drawn beside `auto` has neighbour weights instead of uniform ones.
pub(super) const MOST_FOR_ALL_PAIRS: usize = 500;
/// Default number of neighbours of a point.
#[doc(hidden)]
pub const NEIGHBOURS: usize = 10;
/// A mean silhouette above this indicates clear clusters; below it, nested clusters can mislead.
const CLEAR: f64 = 0.7;

/// Runs the requested algorithm.
pub fn find(points: Points, request: &Request, progress: Progress) -> Result<Found> {
    let mut found = match request.algorithm {
        Algorithm::KMeans | Algorithm::Spectral | Algorithm::Gradient => find_by_means(points, request, progress)?,
        Algorithm::Convex => match request.lambda {
            Some(lambda) => {
                let Convex { clustering, certificate, .. } = convex::cluster(points, &request.weights, lambda)?;
                let (lambda, weights) = (Some(lambda), Some(request.weights.clone()));
                Found { lambda, weights, certificate: Some(certificate), ..Found::from(clustering) }
            }
            None => find_on_path(points, request, &request.weights, progress)?,
        },
        Algorithm::Clusterpath => find_on_path(points, request, &request.weights, progress)?,
        Algorithm::Auto => {
            let Decision { clustering, aside, sureness, notes } = auto::find(points, &request.key, progress)?;
            Found { aside, sureness: Some(sureness), notes, ..Found::from(clustering) }
        }
    };
    found.note_oddities();
    Ok(found)
}

/// The k-means family, with the number of clusters given or chosen by silhouette.
fn find_by_means(points: Points, request: &Request, progress: Progress) -> Result<Found> {
    let options = kmeans::Options { starts: request.starts, ..kmeans::Options::default() };
    let (clusters, choice) = match request.clusters {
        Some(clusters) => (clusters, None),
        None => {
            progress(Stage { what: "k-means for several numbers of clusters", done: 0, total: 1 })?;
            let choice = choose_by_silhouette(points, &options, &request.key)?;
            (choice.kmeans.clustering.clusters(), Some(choice))
        }
    };
    progress(Stage { what: "k-means", done: 0, total: 1 })?;
    let result = match (request.algorithm, &choice) {
        (Algorithm::Spectral, _) => spectral::cluster(points, clusters, &options, &request.key)?,
        (Algorithm::Gradient, _) => gradient::cluster(points, clusters, request.starts, &request.key)?,
        (_, Some(choice)) => choice.kmeans.clone(),
        (_, None) => kmeans::cluster(points, clusters, &options, &request.key)?,
    };
    let mut found = Found::from(result.clustering);
    if !result.converged {
        found.notes.push(format!("not at rest after {} iterations", result.iterations));
    }
    if let Some(choice) = choice {
        found.sureness = Some(sureness_of_silhouette(&choice));
        found.silhouettes = choice.curve;
    }
    Ok(found)
}

fn sureness_of_silhouette(choice: &Choice) -> Sureness {
    let Choice { kmeans: KMeans { clustering, .. }, silhouette: best, curve } = choice;
    let clusters = clustering.clusters();
    let others = curve.iter().filter(|(other, _)| *other != clusters);
    let second = others.max_by(|a, b| a.1.total_cmp(&b.1));
    let beside = second.map_or(String::new(), |(other, value)| format!(", the next best {value:.2} for {other}"));
    let reason = format!("the mean silhouette is largest for {clusters} clusters: {best:.2}{beside}");
    // A cluster of one point may be an outlier that hides all others.
    let word = if *best >= CLEAR && !clustering.sizes().contains(&1) { "likely" } else { "unsure" };
    Sureness { word, reason }
}

/// The longest-lived level of a path.
fn find_on_path(points: Points, request: &Request, weights: &Weights, progress: Progress) -> Result<Found> {
    let path = convex::path(points, weights, request.path_values, progress)?;
    let chosen = choose_by_path(points, &path, *weights == Weights::Uniform);
    let at = match &chosen {
        Some((_, step)) => *step,
        // Nothing lies between all apart and all together.
        None => path.steps.len() - 1,
    };
    let step = &path.steps[at];
    let mut found = Found::from(Clustering::of(points, &step.labels));
    found.lambda = Some(step.lambda);
    found.weights = Some(weights.clone());
    found.certificate = Some(step.certificate);
    found.sureness = Some(match &chosen {
        None if path.steps.len() == 1 => Sureness { word: "unsure", reason: "no λ changes what is together".into() },
        None => Sureness {
            word: "unsure",
            reason: "the path goes from all points apart to all together without a level between".into(),
        },
        Some((level, _)) => {
            let lasting = *weights != Weights::Uniform && level.last + 1 == path.steps.len();
            let proven = *weights == Weights::Uniform
                && !found.clustering.sizes().contains(&1)
                && recovery_interval(points, &found.clustering).contains(step.lambda);
            let reason = if lasting {
                format!("the weights connect the points in {} pieces, which no λ joins", level.clusters)
            } else {
                format!(
                    "{} clusters last longest on the path, from λ = {:.4} to {:.4}{}",
                    level.clusters,
                    level.lambda[0],
                    level.lambda[1],
                    if proven { ", and λ lies in their recovery interval" } else { "" }
                )
            };
            let others = path.levels().into_iter().filter(|other| {
                other.clusters > 1 && other.clusters < points.count() && other.clusters != level.clusters
            });
            let second = others.map(|other| other.life()).fold(0.0, f64::max);
            // A cluster of one point may be an outlier that hides all others.
            let stands_out = (lasting || level.life() > 2.0 * second) && !found.clustering.sizes().contains(&1);
            let word = match (proven, stands_out) {
                _ if is_loose(&step.certificate) => "unsure",
                (true, _) => "certain",
                (false, true) => "likely",
                (false, false) => "unsure",
            };
            Sureness { word, reason }
        }
    });
    found.path = Some(path);
    Ok(found)
}

/// The relative gap beyond which a solution does not count as proved.
const LOOSE: f64 = 1e-6;

fn is_loose(certificate: &Certificate) -> bool {
    let most = LOOSE * certificate.primal.abs();
    certificate.gap.is_nan() || most.is_nan() || certificate.gap > most
}

impl From<Clustering> for Found {
    fn from(clustering: Clustering) -> Self {
        Self { clustering, ..Self::default() }
    }
}

impl Found {
    /// The cluster of every point; `None` for those set aside.
    pub fn labels(&self) -> Vec<Option<usize>> {
        let mut labels: Vec<Option<usize>> = self.clustering.labels.iter().copied().map(Some).collect();
        self.aside.iter().for_each(|&point| labels[point] = None);
        labels
    }

    /// Number of points of every cluster, without those set aside.
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes = self.clustering.sizes();
        self.aside.iter().for_each(|&point| sizes[self.clustering.labels[point]] -= 1);
        sizes
    }

    /// The points that are not set aside, row-major, and their clustering.
    pub(crate) fn members(&self, points: Points) -> (Vec<f64>, Clustering) {
        let (mut values, mut clustering) = (Vec::with_capacity(points.values().len()), self.clustering.clone());
        clustering.labels.clear();
        for (point, label) in self.labels().into_iter().enumerate() {
            if let Some(label) = label {
                values.extend_from_slice(points.row(point));
                clustering.labels.push(label);
            }
        }
        (values, clustering)
    }

    fn note_oddities(&mut self) {
        let sizes = self.sizes();
        let (clusters, points) = (sizes.len(), self.clustering.labels.len());
        let single = sizes.iter().filter(|&&size| size == 1).count();
        if points > 1 && clusters == points {
            self.notes.push("every point is a cluster of its own".into());
        } else if points > 1 && clusters == 1 {
            let which = if self.aside.is_empty() { "all points" } else { "all other points" };
            self.notes.push(format!("{which} are one cluster"));
        } else if single > 0 && points > 1 {
            self.notes.push(format!(
                "{single} of {clusters} clusters {} a single point",
                if single == 1 { "is" } else { "are" }
            ));
        }
        if let Some(certificate @ Certificate { primal, gap, undecided, .. }) = self.certificate {
            if is_loose(&certificate) {
                let relative = gap / primal;
                self.notes.push(format!("the solution is proved only to a relative gap of {relative:.0e}"));
            } else if undecided > 0 {
                self.notes.push(format!(
                    "{undecided} pairs of points are neither proved together nor apart: λ is very near to where they fuse"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clustering::quality::misclustering;
    use rand_distr::{Distribution, StandardNormal};

    /// `size` points around each of `centres` places on a line through `dimension` dimensions.
    fn blobs(centres: usize, size: usize, dimension: usize, spread: f64) -> (Vec<f64>, Vec<usize>) {
        let mut random = Key::new(11).word("blobs").rng();
        let labels: Vec<usize> = (0..centres * size).map(|point| point % centres).collect();
        let normal = |random: &mut crate::rng::Rng| -> f64 { StandardNormal.sample(random) };
        let values = labels.iter().flat_map(|&label| vec![10.0 * label as f64; dimension]);
        (values.map(|centre| centre + spread * normal(&mut random)).collect(), labels)
    }

    fn ask(algorithm: Algorithm) -> Request {
        Request {
            algorithm,
            clusters: None,
            lambda: None,
            weights: Weights::Uniform,
            starts: 10,
            path_values: 20,
            key: Key::new(5),
        }
    }

    fn run(values: &[f64], dimension: usize, request: &Request) -> Found {
        find(Points::new(values, dimension).unwrap(), request, &mut |_| Ok(())).unwrap()
    }

    #[test]
    fn every_algorithm_finds_what_is_plain() {
        let (values, labels) = blobs(3, 8, 4, 0.3);
        for &(name, algorithm) in Algorithm::ALL {
            let found = run(&values, 4, &ask(algorithm));
            assert_eq!(found.clustering.clusters(), 3, "{name}");
            assert_eq!(misclustering(&found.clustering.labels, &labels), 0.0, "{name}");
            assert!(found.sureness.is_some(), "{name}");
        }
    }

    #[test]
    fn one_far_point_does_not_spoil_convex_clustering_with_neighbour_weights() {
        let (near, labels) = blobs(3, 12, 2, 0.3);
        let weights = Weights::Neighbours { neighbours: 5, decay: None };
        // Much farther out, and the near points have too few digits left around the common mean for such a gap.
        for far in [21.7, 25.0, 100.0, 2e4, 1e6] {
            let values = [&near[..], &[far, far]].concat();
            let found = run(&values, 2, &Request { weights: weights.clone(), ..ask(Algorithm::Clusterpath) });
            for step in &found.path.as_ref().unwrap().steps {
                let Certificate { primal, gap, .. } = step.certificate;
                assert!(gap <= 1e-6 * primal, "gap {gap:e} of {primal:e} at λ = {:e}, {far}", step.lambda);
            }
            // The nearest of them is still within reach.
            if far > 22.0 {
                assert_eq!(misclustering(&found.clustering.labels[..36], &labels), 0.0, "{far}");
                assert_eq!(found.clustering.clusters(), 4, "{far}");
            }
            // A single point is never likely to be a cluster.
            let is_single = found.clustering.sizes().contains(&1);
            assert!(!is_single || found.sureness.unwrap().word == "unsure", "{far}");
        }
    }

    #[test]
    fn a_gap_that_is_not_small_is_said_and_never_likely() {
        let loose = |primal, gap| is_loose(&Certificate { primal, dual: primal - gap, gap, undecided: 0 });
        assert!(loose(1.0, 70.0) && loose(1.0, 1e-5) && loose(1.0, f64::NAN) && loose(f64::NAN, 1.0));
        assert!(!loose(1.0, 1e-7) && !loose(0.0, 0.0));
        let clustering = Clustering::of(Points::new(&[0.0, 0.1, 9.0, 9.1], 1).unwrap(), &[0, 0, 1, 1]);
        let certificate = Some(Certificate { primal: 1.0, dual: -69.0, gap: 70.0, undecided: 0 });
        let mut found = Found { certificate, ..Found::from(clustering) };
        found.note_oddities();
        assert_eq!(found.notes, ["the solution is proved only to a relative gap of 7e1"]);
    }
}
