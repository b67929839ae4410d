//! k-means by Lloyd's iteration from several k-means++ starts.

use super::*;
use crate::rng::Rng;
use rand::RngExt;
use std::collections::HashSet;

/// Options of k-means.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Number of seedings, the best of which is returned.
    pub starts: usize,
    /// Upper bound on the iterations.
    pub iterations: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { starts: 10, iterations: 300 }
    }
}

impl Options {
    pub(super) fn check(&self) -> Result<()> {
        let count = |name: &str, value: usize| match value {
            0 => Err(Error::settings(format!("{name}: got 0, want at least 1"))),
            _ => Ok(()),
        };
        count("starts", self.starts)?;
        count("iterations", self.iterations)
    }
}

/// The best of the starts.
#[derive(Debug, Clone)]
pub struct KMeans {
    /// The clustering.
    pub clustering: Clustering,
    /// Sum of squared distances to the centres.
    pub inertia: f64,
    /// Iterations of the best start.
    pub iterations: usize,
    /// Whether it converged.
    pub converged: bool,
}

/// k-means++ seeding and Lloyd's iteration. There must be as many distinct points as clusters; then every cluster has
/// points. The same bits for any number of threads.
///
/// ```
/// use kinfolk::clustering::{Points, kmeans};
/// use kinfolk::rng::Key;
/// let values = [0.0, 1.0, 10.0, 11.0];
/// let found = kmeans::cluster(Points::new(&values, 1)?, 2, &kmeans::Options::default(), &Key::new(0))?;
/// assert_eq!(found.clustering.labels, [0, 0, 1, 1]);
/// assert_eq!(found.clustering.centres, [0.5, 10.5]);
/// assert_eq!(found.inertia, 1.0);
/// # Ok::<(), kinfolk::Error>(())
/// ```
pub fn cluster(points: Points, clusters: usize, options: &Options, key: &Key) -> Result<KMeans> {
    options.check()?;
    check_clusters(points, clusters)?;
    best_of(points, clusters, options.starts, key, |start| {
        Ok(finish(points, lloyd::run(points, start, lloyd::Pace::Jump, options.iterations)?))
    })
}

/// Lloyd's iteration from given centres, row-major. Ties go to the lowest centre; a centre that loses all its points
/// takes the point farthest from the mean of its cluster.
pub fn lloyd(points: Points, centres: &[f64], iterations: usize) -> Result<KMeans> {
    Options { starts: 1, iterations }.check()?;
    let dimension = points.dimension();
    if !centres.len().is_multiple_of(dimension) {
        let found = centres.len();
        return Err(Error::data(format!("centres: got {found} numbers, want a multiple of the {dimension} columns")));
    }
    check_clusters(points, centres.len() / dimension)?;
    Points::new(centres, dimension).map_err(|error| error.at("centres"))?;
    Ok(finish(points, lloyd::run(points, centres, lloyd::Pace::Jump, iterations)?))
}

/// The result with the smallest inertia over several k-means++ starts, the first among equals.
pub(super) fn best_of(
    points: Points,
    clusters: usize,
    starts: usize,
    key: &Key,
    run: impl Fn(&[f64]) -> Result<KMeans> + Sync,
) -> Result<KMeans> {
    let one = |start: usize| {
        let mut random = key.clone().word("k-means++").number(start as u64).rng();
        run(&seed(points, clusters, &mut random))
    };
    // Small data is parallel over starts, large data over its parts, with one start in memory at a time.
    let tried: Result<Vec<KMeans>> = if lloyd::parts(points.count(), clusters) == 1 {
        (0..starts).into_par_iter().map(one).collect()
    } else {
        (0..starts).map(one).collect()
    };
    let better = |best: KMeans, other: KMeans| if other.inertia < best.inertia { other } else { best };
    Ok(tried?.into_iter().reduce(better).expect("at least one start"))
}

pub(super) fn finish(points: Points, rest: lloyd::Rest) -> KMeans {
    let clustering = Clustering::of(points, &rest.labels);
    let inertia = inertia(points, &clustering);
    KMeans { clustering, inertia, iterations: rest.iterations, converged: rest.converged }
}

pub(crate) fn inertia(points: Points, clustering: &Clustering) -> f64 {
    let sums: Vec<f64> = (points.values().par_chunks(BLOCK * points.dimension()))
        .zip(clustering.labels.par_chunks(BLOCK))
        .map(|(rows, labels)| {
            let rows = rows.chunks_exact(points.dimension());
            rows.zip(labels).map(|(row, &label)| squared_distance(row, clustering.centre(label))).sum()
        })
        .collect();
    sums.iter().sum()
}

/// An error unless there are at least as many distinct points as clusters, and one cluster.
pub(super) fn check_clusters(points: Points, clusters: usize) -> Result<()> {
    if clusters == 0 {
        return Err(Error::settings("clusters: got 0, want at least 1"));
    }
    let distinct = count_distinct(points, clusters);
    if distinct < clusters {
        return Err(Error::settings(format!(
            "clusters: got {clusters}, want at most {distinct}, as many as there are distinct points"
        )));
    }
    Ok(())
}

/// Number of distinct points, counted up to `enough`.
pub(super) fn count_distinct(points: Points, enough: usize) -> usize {
    let mut seen: HashSet<Vec<u64>> = HashSet::new();
    let mut bits = vec![0; points.dimension()];
    for row in points.values().chunks_exact(points.dimension()) {
        if seen.len() >= enough {
            break;
        }
        // −0 + 0 is 0.
        bits.iter_mut().zip(row).for_each(|(bits, value)| *bits = (value + 0.0).to_bits());
        if !seen.contains(&bits) {
            seen.insert(bits.clone());
        }
    }
    seen.len()
}

/// Points per partial sum.
const BLOCK: usize = 2048;

/// Greedy k-means++: every further centre is the best of 2 + ln K points, each drawn with chances proportional to its
/// squared distance to the nearest centre so far.
pub(super) fn seed(points: Points, clusters: usize, random: &mut Rng) -> Vec<f64> {
    let dimension = points.dimension();
    let trials = 2 + (clusters as f64).ln() as usize;
    let mut centres = Vec::with_capacity(clusters * dimension);
    centres.extend_from_slice(points.row(random.random_range(0..points.count())));
    let mut closest = vec![f64::INFINITY; points.count()];
    let (mut closer, mut weights) = lower_to(points, &centres, &closest);
    closest.copy_from_slice(&closer);
    let mut candidates = vec![0.0; trials * dimension];
    while centres.len() < clusters * dimension {
        for candidate in candidates.chunks_exact_mut(dimension) {
            candidate.copy_from_slice(points.row(draw(&closest, &weights, random)));
        }
        let potentials;
        (closer, potentials) = lower_to(points, &candidates, &closest);
        let total = |trial: usize| potentials[trial..].iter().step_by(trials).sum::<f64>();
        let best = (1..trials).fold(0, |best, trial| if total(trial) < total(best) { trial } else { best });
        centres.extend_from_slice(&candidates[best * dimension..(best + 1) * dimension]);
        closest.iter_mut().zip(closer[best..].iter().step_by(trials)).for_each(|(to, &from)| *to = from);
        weights = potentials[best..].iter().step_by(trials).copied().collect();
    }
    centres
}

/// For every point, its squared distance to the nearest centre with each candidate added; and the sums of these over
/// every block of points. Both with the candidates innermost.
fn lower_to(points: Points, candidates: &[f64], closest: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let dimension = points.dimension();
    let panels = Panels::pack(candidates, dimension);
    let trials = candidates.len() / dimension;
    let mut closer = vec![0.0; points.count() * trials];
    let mut potentials = vec![0.0; points.count().div_ceil(BLOCK) * trials];
    closer
        .par_chunks_mut(BLOCK * trials)
        .zip(potentials.par_chunks_mut(trials))
        .zip(points.values().par_chunks(BLOCK * dimension).zip(closest.par_chunks(BLOCK)))
        .for_each(|((closer, potentials), (rows, closest))| {
            dispatch!(|cpu| {
                for (tile, filled) in tiles(closest.len()) {
                    let tile_rows = tile.map(|point| &rows[point * dimension..(point + 1) * dimension]);
                    for panel in 0..panels.count() {
                        let squares = panels.squares(cpu, panel, tile_rows);
                        for (squares, point) in squares.iter().zip(tile).take(filled) {
                            for (trial, square) in panels.members(panel).zip(squares) {
                                let lowered = square.min(closest[point]);
                                closer[point * trials + trial] = lowered;
                                potentials[trial] += lowered;
                            }
                        }
                    }
                }
            });
        });
    (closer, potentials)
}

/// A point drawn with chances proportional to `closest`, whose sums over the blocks are `weights`.
fn draw(closest: &[f64], weights: &[f64], random: &mut Rng) -> usize {
    let mut left = random.random::<f64>() * weights.iter().sum::<f64>();
    let mut chosen = 0;
    for (block, (values, &weight)) in closest.chunks(BLOCK).zip(weights).enumerate() {
        // Rounding may leave a remainder: then it is the last point that could be drawn.
        let last = block + 1 == weights.len();
        if left >= weight && !last {
            left -= weight;
            continue;
        }
        for (point, &value) in values.iter().enumerate().filter(|(_, value)| **value > 0.0) {
            chosen = block * BLOCK + point;
            left -= value;
            if left < 0.0 {
                return chosen;
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_distr::{Distribution, StandardNormal};

    fn run(values: &[f64], dimension: usize, clusters: usize) -> Result<KMeans> {
        cluster(Points::new(values, dimension)?, clusters, &Options::default(), &Key::new(0))
    }

    fn message(result: Result<KMeans>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn finds_planted_clusters() {
        let mut random = Key::new(1).rng();
        let middles: Vec<f64> = (0..80).map(|_| 5.0 * random.sample::<f64, _>(StandardNormal)).collect();
        let mut draw = |index: usize| -> f64 { middles[index % 80] + random.sample::<f64, _>(StandardNormal) };
        let values: Vec<f64> = (0..40_000).map(&mut draw).collect();
        let found = run(&values, 10, 8).unwrap();
        let truth: Vec<usize> = (0..4000).map(|point| point % 8).collect();
        assert_eq!(found.clustering.labels, truth);
        assert!(found.converged);
        // 4000 points, 10 columns, variance 1, less one degree of freedom for every centre and column.
        assert!((found.inertia / (40_000.0 - 80.0) - 1.0).abs() < 0.03, "{}", found.inertia);
    }

    #[test]
    fn threads_and_repetition_change_nothing() {
        let mut random = Key::new(2).rng();
        let values: Vec<f64> = (0..60_000).map(|_| StandardNormal.sample(&mut random)).collect();
        let points = Points::new(&values, 6).unwrap();
        let options = Options { starts: 2, iterations: 20 };
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| cluster(points, 5, &options, &Key::new(3)).unwrap())
        };
        let (one, three) = (with(1), with(3));
        assert_eq!(one.clustering, three.clustering);
        assert_eq!(one.inertia.to_bits(), three.inertia.to_bits());
        assert_eq!(one.iterations, three.iterations);
    }

    #[test]
    fn seeds_are_far_apart_and_drawn_from_the_points() {
        // Three tight groups: the third of the draws can only fall into the group without a centre.
        let values = [0.0, 0.0, 0.0, 100.0, 100.0, 100.0, 200.0, 200.0, 200.0];
        for start in 0..20 {
            let mut centres = seed(Points::new(&values, 1).unwrap(), 3, &mut Key::new(start).rng());
            centres.sort_by(f64::total_cmp);
            assert_eq!(centres, [0.0, 100.0, 200.0]);
        }
    }

    #[test]
    fn draws_follow_the_weights() {
        let mut closest = vec![0.0; BLOCK + 4];
        (closest[1], closest[BLOCK], closest[BLOCK + 2]) = (1.0, 2.0, 1.0);
        let weights = [1.0, 3.0];
        let mut random = Key::new(4).rng();
        let mut drawn = vec![0; BLOCK + 4];
        for _ in 0..4000 {
            drawn[draw(&closest, &weights, &mut random)] += 1;
        }
        let at = |point: usize| drawn[point] as f64 / 1000.0;
        assert!((at(1) - 1.0).abs() < 0.1 && (at(BLOCK) - 2.0).abs() < 0.1 && (at(BLOCK + 2) - 1.0).abs() < 0.1);
        assert_eq!(drawn[1] + drawn[BLOCK] + drawn[BLOCK + 2], 4000);
    }

    #[test]
    fn lloyd_by_hand() {
        // 0 1 | 5 9 from centres 0 and 4; 5 stays with the second: 5 is 4.5 from 0.5 and 2 from 7.
        let values = [0.0, 1.0, 5.0, 9.0];
        let points = Points::new(&values, 1).unwrap();
        let found = lloyd(points, &[0.0, 4.0], 10).unwrap();
        assert_eq!(found.clustering.labels, [0, 0, 1, 1]);
        assert_eq!(found.clustering.centres, [0.5, 7.0]);
        assert_eq!((found.inertia, found.iterations, found.converged), (8.5, 2, true));
        let cut = lloyd(points, &[0.0, 4.0], 1).unwrap();
        assert_eq!((cut.iterations, cut.converged), (1, false));
        // A tie goes to the lower centre: 1 lies amid 0 and 2.
        assert_eq!(
            lloyd(Points::new(&[1.0, 0.0, 2.0], 1).unwrap(), &[2.0, 0.0], 1).unwrap().clustering.labels,
            [0, 1, 0]
        );
    }

    #[test]
    fn degenerate_points() {
        let one = run(&[3.0, 4.0], 2, 1).unwrap();
        assert_eq!((one.clustering.labels, one.clustering.centres, one.inertia), (vec![0], vec![3.0, 4.0], 0.0));
        let two = run(&[3.0, 4.0], 1, 2).unwrap();
        assert_eq!((two.clustering.labels, two.inertia), (vec![0, 1], 0.0));
        let identical = run(&[0.1; 21], 3, 1).unwrap();
        assert_eq!(identical.clustering.labels, [0; 7]);
        assert!(identical.inertia < 1e-30);
        // One cluster is the mean.
        let mean = run(&[1.0, 2.0, 6.0], 1, 1).unwrap();
        assert_eq!((mean.clustering.centres, mean.inertia), (vec![3.0], 14.0));
        // Every point its own cluster; duplicates share one.
        let values: Vec<f64> = (0..40).map(|value| f64::from(value * value % 41)).collect();
        let all = run(&values, 2, 20).unwrap();
        assert_eq!((all.clustering.labels, all.inertia), ((0..20).collect(), 0.0));
        let duplicates = run(&[5.0, 1.0, 5.0, 1.0, 2.0, -0.0, 0.0], 1, 4).unwrap();
        assert_eq!((duplicates.clustering.labels, duplicates.inertia), (vec![0, 1, 0, 1, 2, 3, 3], 0.0));
        // More columns than points, and constant columns.
        let wide: Vec<f64> =
            (0..300).map(|index| if index % 100 == 7 { f64::from(index / 100 / 2) } else { 1.5 }).collect();
        assert_eq!(run(&wide, 100, 2).unwrap().clustering.labels, [0, 0, 1]);
        // Magnitudes at the border of what is allowed.
        let large = run(&[-1e150, -0.9e150, 1e150, 0.9e150], 1, 2).unwrap();
        assert_eq!(large.clustering.labels, [0, 0, 1, 1]);
    }

    #[test]
    fn impossible_wishes_are_refused() {
        assert_eq!(
            message(run(&[1.0, 2.0, 1.0, 2.0, 0.0, -0.0], 2, 3)),
            "clusters: got 3, want at most 2, as many as there are distinct points"
        );
        assert!(message(run(&[7.0; 9], 3, 2)).contains("want at most 1"));
        assert_eq!(message(run(&[7.0], 1, 0)), "clusters: got 0, want at least 1");
        let points = Points::new(&[1.0, 2.0], 1).unwrap();
        let without = |starts, iterations| message(cluster(points, 1, &Options { starts, iterations }, &Key::new(0)));
        assert_eq!(without(0, 1), "starts: got 0, want at least 1");
        assert_eq!(without(1, 0), "iterations: got 0, want at least 1");
        assert!(message(lloyd(points, &[f64::NAN], 5)).starts_with("centres: "));
        assert!(message(lloyd(points, &[], 5)).contains("clusters: got 0"));
        assert!(message(lloyd(points, &[1.0, 2.0, 3.0], 5)).contains("want at most 2"));
        // Distinct, but squares of their differences vanish.
        assert!(message(run(&[1e-200, 2e-200, 3e-200], 1, 3)).contains("distances are 0"));
    }
}
