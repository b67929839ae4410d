//! `kinfolk cluster POINTS`: any table of points, from a file to its clusters.

use super::*;
use crate::progress::Wait;
use kinfolk::clustering::{Request, Search};
use kinfolk::compute::threads;
use kinfolk::data::points::{self, Choice};
use kinfolk::disk::folder::NewFolder;
use kinfolk::report::clustering::{ClusteringRecord, FILES, text};
use kinfolk::settings::finish;
use std::time::Instant;

const METHODS: &str = "\
Methods:
  kmeans++     Lloyd's iteration from several starts; --clusters, or else chosen by silhouette
  spectral     k-means in the space of the top singular vectors, then in the full one
  gradient     centres that descend
  convex       convex clustering at --lambda, or else at the middle of the level that lasts longest
  clusterpath  convex clustering over a range of λ; the number of clusters that lasts longest
  auto         finds the number of clusters, sets points aside that fit none, and says how sure it is";

/// Cluster a table of points: labels, centres, and how sure they are.
#[derive(clap::Args)]
#[command(after_help = METHODS)]
pub struct Arguments {
    /// A file of csv, tsv, npy, parquet or arrow: one row a point, every column a coordinate
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
    /// How many starts kmeans++, spectral and gradient try [default: 10]
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
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
}

pub fn run(arguments: Arguments) -> Result<Ending> {
    let search = arguments.search();
    let (method, request) = arguments.check(&search)?;
    // A folder that cannot be used is better known now.
    let folder =
        arguments.out.as_deref().map(|path| NewFolder::claim(path, FILES.into_iter().chain(["experiment.toml"])));
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
    let pool = threads(arguments.threads.unwrap_or(0))?;
    let began = Instant::now();
    let mut show = |stage| {
        wait.stage(stage);
        Ok(())
    };
    let found = pool.install(|| search.run(points, &request, &mut show))?;
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
        say(&format!("report: {}", folder.path().join("report.html").display()));
    }
    Ok(Ending::Done)
}

impl Arguments {
    fn search(&self) -> Search {
        Search {
            method: self.method.clone(),
            clusters: self.clusters,
            lambda: self.lambda,
            path: self.path,
            weights: self.weights.clone(),
            neighbours: self.neighbours,
            decay: self.decay,
            starts: self.starts,
            path_values: self.path_values,
            seed: self.seed,
        }
    }

    /// The name of the method and what to ask of it; all faults at once.
    fn check(&self, search: &Search) -> Result<(&'static str, Request)> {
        let mut faults = Vec::new();
        if !self.columns.is_empty() && !self.drop.is_empty() {
            faults.push(Error::settings("--drop: --columns says already which columns to take"));
        }
        let request = search.request(&mut faults);
        finish(faults).map(|()| request)
    }
}
