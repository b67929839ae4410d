//! `kinfolk cluster POINTS`: any table of points, from a file to its clusters.

use super::{print, print_json};
use crate::Ending;
use crate::progress::Wait;
use kinfolk::clustering::convex::{self, Weights};
use kinfolk::clustering::{Algorithm, Found, MOST_FOR_ALL_PAIRS, NEIGHBOURS, Points, Request, find};
use kinfolk::data::points::{self, Choice};
use kinfolk::federation::local::threads;
use kinfolk::report::clustering::{ClusteringRecord, FILES, text};
use kinfolk::report::folder::NewFolder;
use kinfolk::rng::Key;
use kinfolk::settings::{finish, unknown_name};
use kinfolk::{Error, Result};
use std::path::PathBuf;
use std::time::Instant;

const METHODS: &str = "\
Methods:
  kmeans++     Lloyd's iteration from several starts; --clusters, or else chosen by silhouette
  spectral     k-means in the space of the top singular vectors, then in the full one
  gradient     centres that descend
  convex       convex clustering at --lambda, or else at the middle of the level that lasts longest
  clusterpath  convex clustering over a range of λ; the number of clusters that lasts longest
  auto         finds the number of clusters and says how sure it is";

/// Cluster a table of points: labels, centres, and how sure they are.
#[derive(clap::Args)]
#[command(after_help = METHODS)]
pub struct Arguments {
    /// A csv, tsv, npy or parquet file: one row a point, every column a coordinate
    points: PathBuf,
    /// How to cluster [default: auto; kmeans++ with --clusters, convex with --lambda]
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// How many clusters; of kmeans++, spectral and gradient
    #[arg(long, value_name = "K")]
    clusters: Option<usize>,
    /// How strongly points pull at each other, from 0 to inf; of convex
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    lambda: Option<f64>,
    /// Also follow the points over a range of λ; of convex, clusterpath and auto
    #[arg(long)]
    path: bool,
    /// Which points pull: uniform (all pairs) or neighbours; of convex, clusterpath and auto [default: uniform]
    #[arg(long, value_name = "WEIGHTS")]
    weights: Option<String>,
    /// How many nearest neighbours pull at a point, with --weights neighbours [default: 10]
    #[arg(long, value_name = "N")]
    neighbours: Option<usize>,
    /// Neighbours pull with exp(-PHI · distance²) [default: 1 / (2 · their median squared distance)]
    #[arg(long, value_name = "PHI", allow_negative_numbers = true)]
    decay: Option<f64>,
    /// How many starts kmeans++, spectral, gradient and auto try [default: 10]
    #[arg(long, value_name = "N")]
    starts: Option<usize>,
    /// How many values of λ a path has [default: 50]
    #[arg(long, value_name = "N")]
    path_values: Option<usize>,
    /// Seed of the starts
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Only these columns, in this order
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    columns: Vec<String>,
    /// All columns but these
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    drop: Vec<String>,
    /// The column that names the points; not a coordinate
    #[arg(long, value_name = "COLUMN")]
    id: Option<String>,
    /// Give every column mean 0 and deviation 1 first; centres are given in the units of the file
    #[arg(long)]
    standardise: bool,
    /// Folder for labels.csv, centres.csv, summary.json, report.html, and path.csv and tree.csv of a path
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
    /// Threads to use [default: one for every core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<Ending> {
    let (method, request) = arguments.request()?;
    // A folder that cannot be used is better known now.
    let folder =
        arguments.out.as_deref().map(|path| NewFolder::claim(path, &[&FILES[..], &["experiment.toml"]].concat()));
    let folder = folder.transpose()?;
    let choice = Choice {
        columns: arguments.columns.clone(),
        drop: arguments.drop.clone(),
        id: arguments.id.clone(),
        standardise: arguments.standardise,
    };
    let wait = Wait::new("reading the points");
    let table = points::read(&arguments.points, &choice)?;
    let points = table.points()?;
    check_against(points, &request)?;
    let pool = threads(arguments.threads.map_or(0, usize::from))?;
    let began = Instant::now();
    let found = pool.install(|| cluster(points, &request, arguments.path, &wait))?;
    let seconds = began.elapsed().as_secs_f64();
    let source = arguments.points.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let record = ClusteringRecord::of(source, &table, method, &found, seconds)?;
    if let Some(folder) = &folder {
        record.write(folder.path())?;
    }
    drop(wait);
    if arguments.json {
        print_json(&record.summary)?;
    } else {
        print(&text(&record))?;
    }
    if let Some(folder) = &folder {
        eprintln!("report: {}", folder.path().join("report.html").display());
    }
    Ok(Ending::Done)
}

fn cluster(points: Points, request: &Request, with_path: bool, wait: &Wait) -> Result<Found> {
    let mut found = find(points, request, &mut |stage| wait.stage(stage))?;
    if with_path && found.path.is_none() {
        let weights = match (&request.weights, request.algorithm) {
            (Weights::Uniform, Algorithm::Auto) if points.count() > MOST_FOR_ALL_PAIRS => {
                found.notes.push(format!("on the path the {NEIGHBOURS} nearest neighbours of a point pull at it"));
                &Weights::Neighbours { neighbours: NEIGHBOURS, decay: None }
            }
            (weights, _) => weights,
        };
        found.path = Some(convex::path(points, weights, request.path_values, &mut |stage| wait.stage(stage))?);
    }
    Ok(found)
}

/// What is only known when the points are.
fn check_against(points: Points, request: &Request) -> Result<()> {
    let mut faults = Vec::new();
    if let Some(clusters) = request.clusters.filter(|clusters| *clusters > points.count()) {
        let count = points.count();
        faults.push(Error::settings(format!("--clusters: got {clusters}, want at most {count}, the number of points")));
    }
    finish(faults)
}

/// How many starts unless said otherwise.
const STARTS: usize = 10;
/// How many values of λ unless said otherwise.
const PATH_VALUES: usize = 50;

impl Arguments {
    /// What to look for, and the name of its method; all faults at once.
    fn request(&self) -> Result<(&'static str, Request)> {
        let mut faults = self.faults();
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
                faults.push(unknown_name("--method", asked, &known));
                ("", Algorithm::Auto)
            }
        };
        let neighbours = Weights::Neighbours { neighbours: self.neighbours.unwrap_or(NEIGHBOURS), decay: self.decay };
        let weights = match self.weights.as_deref() {
            Some("neighbours") => neighbours,
            None | Some("uniform") => {
                for option in [self.neighbours.map(|_| "--neighbours"), self.decay.map(|_| "--decay")].iter().flatten()
                {
                    faults.push(Error::settings(format!("{option}: wants --weights neighbours")));
                }
                Weights::Uniform
            }
            Some(other) => {
                faults.push(unknown_name("--weights", other, &["uniform", "neighbours"]));
                Weights::Uniform
            }
        };
        finish(faults)?;
        let request = Request {
            algorithm,
            clusters: self.clusters,
            lambda: self.lambda,
            weights,
            starts: self.starts.unwrap_or(STARTS),
            path_values: self.path_values.unwrap_or(PATH_VALUES),
            key: Key::new(self.seed).word("cluster"),
        };
        Ok((method, request))
    }

    /// Values that no method takes.
    fn faults(&self) -> Vec<Error> {
        let least = |option: &str, value: Option<usize>, least: usize| {
            let value = value.filter(|value| *value < least)?;
            Some(format!("{option}: got {value}, want at least {least}"))
        };
        let lambda = self.lambda.filter(|lambda| lambda.is_nan() || *lambda < 0.0);
        let decay = self.decay.filter(|decay| !decay.is_finite() || *decay < 0.0);
        let both = !self.columns.is_empty() && !self.drop.is_empty();
        let faults = [
            least("--clusters", self.clusters, 1),
            lambda.map(|lambda| format!("--lambda: got {lambda}, want a number of at least 0, or inf")),
            least("--neighbours", self.neighbours, 1),
            decay.map(|decay| format!("--decay: got {decay}, want a number of at least 0")),
            least("--starts", self.starts, 1),
            least("--path-values", self.path_values, 2),
            both.then(|| "--drop: --columns says already which columns to take".to_string()),
        ];
        faults.into_iter().flatten().map(Error::settings).collect()
    }

    /// Options that say nothing to this method.
    fn out_of_place(&self, (method, algorithm): (&str, Algorithm)) -> Vec<Error> {
        use Algorithm::{Auto, Clusterpath, Convex, Gradient, KMeans, Spectral};
        let options: [(&str, bool, &[Algorithm]); 8] = [
            ("--clusters", self.clusters.is_some(), &[KMeans, Spectral, Gradient]),
            ("--lambda", self.lambda.is_some(), &[Convex]),
            ("--path", self.path, &[Convex, Clusterpath, Auto]),
            ("--weights", self.weights.is_some(), &[Convex, Clusterpath, Auto]),
            ("--neighbours", self.neighbours.is_some(), &[Convex, Clusterpath, Auto]),
            ("--decay", self.decay.is_some(), &[Convex, Clusterpath, Auto]),
            ("--starts", self.starts.is_some(), &[KMeans, Spectral, Gradient, Auto]),
            ("--path-values", self.path_values.is_some(), &[Convex, Clusterpath, Auto]),
        ];
        let misplaced = options.iter().filter(|(_, given, of)| *given && !of.contains(&algorithm));
        let name = |wanted: &Algorithm| Algorithm::ALL.iter().find(|(_, known)| known == wanted).map(|(name, _)| *name);
        misplaced
            .map(|(option, _, of)| {
                let names: Vec<&str> = of.iter().filter_map(name).collect();
                Error::settings(format!("{option}: not a setting of {method}, but of {}", names.join(", ")))
            })
            .collect()
    }
}
