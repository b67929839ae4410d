//! A search as a user specifies it: defaults, and checks of the options.

use super::find::MOST_FOR_ALL_PAIRS;
use super::*;
use crate::error::option;
use crate::memory::check_room;
use crate::settings::unknown_name;

const STARTS: usize = 10;
const PATH_VALUES: usize = 50;
/// Upper bound on starts and on values of λ.
const MOST_TRIED: usize = 1 << 16;
const MOST_NEIGHBOURS: usize = 1 << 20;

/// Unchecked options of a search.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// The name of an algorithm; where absent, `kmeans++` for a number of clusters, `convex` for a λ, or else `auto`.
    pub method: Option<String>,
    /// Number of clusters.
    pub clusters: Option<usize>,
    /// λ of convex clustering.
    pub lambda: Option<f64>,
    /// Whether to compute a path over λ, even if the algorithm does not need it.
    pub path: bool,
    /// `uniform` or `neighbours`.
    pub weights: Option<String>,
    /// Number of neighbours with a weight.
    pub neighbours: Option<usize>,
    /// Decay of their weights with the squared distance.
    pub decay: Option<f64>,
    /// Number of starts of the k-means family.
    pub starts: Option<usize>,
    /// Number of values of λ on a path.
    pub path_values: Option<usize>,
    /// Seed of the starts.
    pub seed: u64,
}

impl Search {
    /// The name of the algorithm and the checked request, which is valid only if no `faults` are added.
    pub fn request(&self, faults: &mut Vec<Error>) -> (&'static str, Request) {
        faults.extend(self.out_of_range());
        let asked = self.method.as_deref().unwrap_or(match (self.clusters, self.lambda) {
            (Some(_), _) => "kmeans++",
            (None, Some(_)) => "convex",
            (None, None) => "auto",
        });
        let (method, algorithm) = match Algorithm::ALL.iter().find(|(name, _)| *name == asked) {
            Some(known) => {
                faults.extend(self.out_of_place(*known));
                *known
            }
            None => {
                let known: Vec<&str> = Algorithm::ALL.iter().map(|(name, _)| *name).collect();
                faults.push(unknown_name(&option("method"), asked, &known));
                ("", Algorithm::Auto)
            }
        };
        let request = Request {
            algorithm,
            clusters: self.clusters,
            lambda: self.lambda,
            weights: self.weights(faults),
            starts: self.starts.unwrap_or(STARTS),
            path_values: self.path_values.unwrap_or(PATH_VALUES),
            key: Key::new(self.seed).word("cluster"),
        };
        (method, request)
    }

    /// Searches these points by the checked request.
    pub fn run(&self, points: Points, request: &Request, progress: Progress) -> Result<Found> {
        let count = points.count();
        if let Some(clusters) = request.clusters.filter(|clusters| *clusters > count) {
            let message = format!("{}: got {clusters}, want at most {count}, the number of points", option("clusters"));
            return Err(Error::settings(message));
        }
        if let Weights::Neighbours { neighbours, .. } = request.weights {
            let bytes = size_of::<f64>() * points.dimension() + 2 * size_of::<[f64; 2]>();
            check_room(&option("neighbours"), &[count, neighbours.min(count)], bytes)?;
        }
        if self.path || matches!(request.algorithm, Algorithm::Convex | Algorithm::Clusterpath) {
            check_room(&option("path_values"), &[count, request.path_values], size_of::<[f64; 3]>())?;
        }
        let mut found = find(points, request, progress)?;
        match found.aside.len() {
            0 => {}
            1 => found.notes.push("1 point fits no cluster and is set aside".into()),
            several => found.notes.push(format!("{several} points fit no cluster and are set aside")),
        }
        if self.path && found.path.is_none() {
            let weights = match (&request.weights, request.algorithm) {
                (Weights::Uniform, Algorithm::Auto) if count > MOST_FOR_ALL_PAIRS => {
                    found.notes.push(format!("on the path the {NEIGHBOURS} nearest neighbours of a point pull at it"));
                    &Weights::Neighbours { neighbours: NEIGHBOURS, decay: None }
                }
                (weights, _) => weights,
            };
            found.path = Some(convex::path(points, weights, request.path_values, progress)?);
        }
        Ok(found)
    }

    fn weights(&self, faults: &mut Vec<Error>) -> Weights {
        match self.weights.as_deref() {
            Some("neighbours") => {
                return Weights::Neighbours { neighbours: self.neighbours.unwrap_or(NEIGHBOURS), decay: self.decay };
            }
            None | Some("uniform") => {
                let idle = [self.neighbours.map(|_| "neighbours"), self.decay.map(|_| "decay")];
                let fault = |name| Error::settings(format!("{}: wants {} neighbours", option(name), option("weights")));
                faults.extend(idle.into_iter().flatten().map(fault));
            }
            Some(other) => faults.push(unknown_name(&option("weights"), other, &["uniform", "neighbours"])),
        }
        Weights::Uniform
    }

    /// Faults of values that no method accepts.
    fn out_of_range(&self) -> Vec<Error> {
        let bounded = |name: &str, value: Option<usize>, least: usize, most: usize| match value? {
            value if value < least => Some(format!("{}: got {value}, want at least {least}", option(name))),
            value if value > most => Some(format!("{}: got {value}, want at most {most}", option(name))),
            _ => None,
        };
        let lambda = self.lambda.filter(|lambda| lambda.is_nan() || *lambda < 0.0);
        let decay = self.decay.filter(|decay| !decay.is_finite() || *decay < 0.0);
        let faults = [
            bounded("clusters", self.clusters, 1, usize::MAX),
            lambda.map(|lambda| format!("{}: got {lambda}, want a number of at least 0, or inf", option("lambda"))),
            bounded("neighbours", self.neighbours, 1, MOST_NEIGHBOURS),
            decay.map(|decay| format!("{}: got {decay}, want a number of at least 0", option("decay"))),
            bounded("starts", self.starts, 1, MOST_TRIED),
            bounded("path_values", self.path_values, 2, MOST_TRIED),
        ];
        faults.into_iter().flatten().map(Error::settings).collect()
    }

    /// Faults of options that this method does not have.
    fn out_of_place(&self, (method, algorithm): (&str, Algorithm)) -> Vec<Error> {
        use Algorithm::{Auto, Clusterpath, Convex, Gradient, KMeans, Spectral};
        let options: [(&str, bool, &[Algorithm]); 8] = [
            ("clusters", self.clusters.is_some(), &[KMeans, Spectral, Gradient]),
            ("lambda", self.lambda.is_some(), &[Convex]),
            ("path", self.path, &[Convex, Clusterpath, Auto]),
            ("weights", self.weights.is_some(), &[Convex, Clusterpath, Auto]),
            ("neighbours", self.neighbours.is_some(), &[Convex, Clusterpath, Auto]),
            ("decay", self.decay.is_some(), &[Convex, Clusterpath, Auto]),
            ("starts", self.starts.is_some(), &[KMeans, Spectral, Gradient]),
            ("path_values", self.path_values.is_some(), &[Convex, Clusterpath, Auto]),
        ];
        let misplaced = options.iter().filter(|(_, given, of)| *given && !of.contains(&algorithm));
        let name = |wanted: &Algorithm| Algorithm::ALL.iter().find(|(_, known)| known == wanted).map(|(name, _)| *name);
        misplaced
            .map(|(given, _, of)| {
                let names: Vec<&str> = of.iter().filter_map(name).collect();
                Error::settings(format!("{}: not a setting of {method}, but of {}", option(given), names.join(", ")))
            })
            .collect()
    }
}
