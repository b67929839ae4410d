//! Quality of a clustering without a known truth: silhouette, and the conditions under which methods are proven to recover
//! clusters ("A One-shot Framework for Distributed Clustered Learning").

use super::*;
use crate::num::norm;
use rand::RngExt;

/// Up to this many points the silhouette is the mean over all of them.
pub const SILHOUETTE_ALL: usize = 20_000;
/// Beyond, it is the mean over this many, drawn without replacement, each measured against all points.
pub const SILHOUETTE_SAMPLE: usize = 2_000;

/// The mean silhouette, between −1 and 1: exact up to [`SILHOUETTE_ALL`] points, beyond that over a sample of
/// [`SILHOUETTE_SAMPLE`] that `key` draws. `None` for one cluster.
pub fn silhouette(points: Points, clustering: &Clustering, key: &Key) -> Option<f64> {
    let count = points.count();
    let which: Vec<usize> = if count <= SILHOUETTE_ALL {
        (0..count).collect()
    } else {
        let mut all: Vec<usize> = (0..count).collect();
        let mut random = key.clone().word("silhouette").rng();
        for place in 0..SILHOUETTE_SAMPLE {
            all.swap(place, random.random_range(place..count));
        }
        all.truncate(SILHOUETTE_SAMPLE);
        all
    };
    let silhouettes = silhouettes(points, clustering, &which)?;
    Some(silhouettes.iter().sum::<f64>() / silhouettes.len() as f64)
}

/// Points processed together: a panel is read once for this many.
const BLOCK: usize = 16 * TILE;

/// The silhouettes of some points: (b − a) / max(a, b) with a the mean distance to the other points of the cluster and b
/// the smallest mean distance to the points of another one. 0 for a point alone in its cluster. `None` for one cluster.
pub fn silhouettes(points: Points, clustering: &Clustering, which: &[usize]) -> Option<Vec<f64>> {
    let clusters = clustering.clusters();
    if clusters < 2 {
        return None;
    }
    let sizes = clustering.sizes();
    let panels = Panels::pack(points.values(), points.dimension());
    let blocks = which.par_chunks(BLOCK).map(|block| {
        let mut sums = vec![0.0; block.len() * clusters];
        for panel in 0..panels.count() {
            let labels = &clustering.labels[panels.members(panel)];
            for (tile, sums) in block.chunks(TILE).zip(sums.chunks_mut(TILE * clusters)) {
                let rows = std::array::from_fn(|slot| points.row(tile[slot.min(tile.len() - 1)]));
                let distances = dispatch!(|cpu| panels.squares(cpu, panel, rows)).map(|squares| squares.map(f64::sqrt));
                for (sums, distances) in sums.chunks_exact_mut(clusters).zip(&distances) {
                    labels.iter().zip(distances).for_each(|(&label, distance)| sums[label] += distance);
                }
            }
        }
        let rate = |(&point, sums): (&usize, &[f64])| {
            let own = clustering.labels[point];
            if sizes[own] == 1 {
                return 0.0;
            }
            let within = sums[own] / (sizes[own] - 1) as f64;
            let others = (0..clusters).filter(|&other| other != own).map(|other| sums[other] / sizes[other] as f64);
            let nearest = others.fold(f64::INFINITY, f64::min);
            if within == nearest { 0.0 } else { (nearest - within) / nearest.max(within) }
        };
        block.iter().zip(sums.chunks_exact(clusters)).map(rate).collect::<Vec<f64>>()
    });
    Some(blocks.collect::<Vec<_>>().concat())
}

/// Separability α of (4): the smallest distance of two centres over the largest distance of a point to its centre,
/// taken over all clusters. Infinite where every point lies on its centre, `None` for one cluster.
pub fn separability(points: Points, clustering: &Clustering) -> Option<f64> {
    let closest = pairs(clustering).map(|(k, l)| distance(clustering.centre(k), clustering.centre(l)));
    let closest = closest.reduce(f64::min)?;
    let radius = (points.values().par_chunks(points.dimension()).zip(&clustering.labels))
        .map(|(row, &label)| squared_distance(row, clustering.centre(label)))
        .reduce(|| 0.0, f64::max)
        .sqrt();
    Some(if closest == 0.0 { 0.0 } else { closest / radius })
}

/// The constant c of the paper's thresholds.
pub const THRESHOLD_CONSTANT: f64 = 100.0;

/// α_km = 2 + 2c√m / √|C_min|: separability beyond which spectral k-means recovers the clusters (Lemma 2).
pub fn separability_for_kmeans(clustering: &Clustering) -> f64 {
    let (points, smallest) = points_and_smallest(clustering);
    2.0 + 2.0 * THRESHOLD_CONSTANT * (points / smallest).sqrt()
}

/// α_cc = 4(m − |C_min|) / |C_min|: separability from which uniform convex clustering can recover clusters (Lemma 1).
pub fn separability_for_convex(clustering: &Clustering) -> f64 {
    let (points, smallest) = points_and_smallest(clustering);
    4.0 * (points - smallest) / smallest
}

fn points_and_smallest(clustering: &Clustering) -> (f64, f64) {
    let smallest = clustering.sizes().into_iter().min().unwrap_or(1);
    (clustering.labels.len() as f64, smallest as f64)
}

/// The largest c for which centres are separated (Definition 3): ‖μ_k − μ_l‖ ≥ c (Δ_k + Δ_l) for all pairs, where
/// Δ_k = min(√K ‖A − C‖, ‖A − C‖_F) / √|C_k|. Infinite where every point lies on its centre, `None` for one cluster or
/// where the norm cannot be computed.
pub fn centre_separation(points: Points, clustering: &Clustering) -> Option<f64> {
    let residuals = residuals(points, clustering);
    let spectral = spectral::spectral_norm(&residuals, points.dimension())?;
    let size = norm(&residuals).min((clustering.clusters() as f64).sqrt() * spectral);
    let shares = inverse_roots(clustering);
    pairs(clustering)
        .map(|(k, l)| {
            let apart = distance(clustering.centre(k), clustering.centre(l));
            if apart == 0.0 { 0.0 } else { apart / (size * (shares[k] + shares[l])) }
        })
        .reduce(f64::min)
}

/// The proximity condition over all points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proximity {
    /// The largest c for which all points satisfy (17); negative where one is on the wrong side.
    pub largest: f64,
    /// The share of points that satisfy it for the c asked for.
    pub share: f64,
}

/// The proximity condition (17): for every point of cluster k and every l ≠ k, the point's projection P on the line
/// through both centres has ‖P − μ_l‖ − ‖P − μ_k‖ ≥ c (1/√|C_k| + 1/√|C_l|) ‖A − C‖. `None` for one cluster or where
/// the norm cannot be computed.
pub fn proximity(points: Points, clustering: &Clustering, constant: f64) -> Option<Proximity> {
    let clusters = clustering.clusters();
    if clusters < 2 {
        return None;
    }
    let norm = spectral::spectral_norm(&residuals(points, clustering), points.dimension())?;
    let shares = inverse_roots(clustering);
    let largest: Vec<f64> = (points.values().par_chunks(points.dimension()).zip(&clustering.labels))
        .map(|(row, &own)| {
            let centre = clustering.centre(own);
            let others = (0..clusters).filter(|&other| other != own).map(|other| {
                let toward = clustering.centre(other);
                let (mut along, mut apart) = (0.0, 0.0);
                for ((value, from), to) in row.iter().zip(centre).zip(toward) {
                    along += (value - from) * (to - from);
                    apart += (to - from) * (to - from);
                }
                let apart = apart.sqrt();
                if apart == 0.0 {
                    return 0.0;
                }
                let along = along / apart;
                ((apart - along).abs() - along.abs()) / (norm * (shares[own] + shares[other]))
            });
            others.fold(f64::INFINITY, f64::min)
        })
        .collect();
    let satisfied = largest.iter().filter(|&&largest| largest >= constant).count();
    Some(Proximity {
        largest: largest.iter().copied().fold(f64::INFINITY, f64::min),
        share: satisfied as f64 / largest.len() as f64,
    })
}

/// Values of λ, from `lower` to below `upper`, for which uniform convex clustering provably recovers a clustering.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecoveryInterval {
    /// The largest of the clusters' diameters over their sizes.
    pub lower: f64,
    /// The smallest of ‖μ_k − μ_l‖ / (2m − |V_k| − |V_l|); infinite for one cluster.
    pub upper: f64,
}

impl RecoveryInterval {
    pub(crate) fn contains(&self, lambda: f64) -> bool {
        self.lower <= lambda && lambda < self.upper
    }
}

/// The recovery interval (13) of a clustering. Its cost is that of all pairs of points within clusters.
pub fn recovery_interval(points: Points, clustering: &Clustering) -> RecoveryInterval {
    let sizes = clustering.sizes();
    let mut members = vec![Vec::new(); clustering.clusters()];
    clustering.labels.iter().enumerate().for_each(|(point, &label)| members[label].push(point));
    let wide = members.iter().map(|members| diameter(points, members) / members.len() as f64);
    let all = 2.0 * points.count() as f64;
    let far = pairs(clustering)
        .map(|(k, l)| distance(clustering.centre(k), clustering.centre(l)) / (all - sizes[k] as f64 - sizes[l] as f64));
    RecoveryInterval { lower: wide.fold(0.0, f64::max), upper: far.fold(f64::INFINITY, f64::min) }
}

fn diameter(points: Points, members: &[usize]) -> f64 {
    let rows: Vec<f64> = members.iter().flat_map(|&point| points.row(point)).copied().collect();
    let panels = Panels::pack(&rows, points.dimension());
    let blocks = members.par_chunks(BLOCK).enumerate().map(|(block, members)| {
        dispatch!(|cpu| {
            let mut widest = 0.0;
            // Earlier panels have been compared with this block already.
            for panel in block * BLOCK / LANES..panels.count() {
                for tile in members.chunks(TILE) {
                    let rows = std::array::from_fn(|slot| points.row(tile[slot.min(tile.len() - 1)]));
                    for squares in panels.squares(cpu, panel, rows) {
                        widest = squares[..panels.members(panel).len()].iter().copied().fold(widest, f64::max);
                    }
                }
            }
            widest
        })
    });
    blocks.reduce(|| 0.0, f64::max).sqrt()
}

/// A − C: every point minus its centre.
fn residuals(points: Points, clustering: &Clustering) -> Vec<f64> {
    let rows = points.values().chunks_exact(points.dimension()).zip(&clustering.labels);
    rows.flat_map(|(row, &label)| row.iter().zip(clustering.centre(label)).map(|(value, centre)| value - centre))
        .collect()
}

/// 1/√|C_k| of every cluster.
fn inverse_roots(clustering: &Clustering) -> Vec<f64> {
    clustering.sizes().into_iter().map(|size| 1.0 / (size as f64).sqrt()).collect()
}

fn pairs(clustering: &Clustering) -> impl Iterator<Item = (usize, usize)> + use<> {
    let clusters = clustering.clusters();
    (0..clusters).flat_map(move |k| (k + 1..clusters).map(move |l| (k, l)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-12 * wanted.abs().max(1.0), "{found}, want {wanted}");
    }

    fn clustered<'a>(values: &'a [f64], dimension: usize, labels: &[usize]) -> (Points<'a>, Clustering) {
        let points = Points::new(values, dimension).unwrap();
        (points, Clustering::of(points, labels))
    }

    #[test]
    fn silhouettes_by_hand() {
        // 0: a = 1, b = 9.5; 1: a = 1, b = 8.5; 9: a = 1, b = 8.5; 10: a = 1, b = 9.5; 30 is alone.
        let values = [0.0, 1.0, 9.0, 10.0, 30.0];
        let (points, clustering) = clustered(&values, 1, &[0, 0, 1, 1, 2]);
        let found = silhouettes(points, &clustering, &[0, 1, 2, 3, 4]).unwrap();
        let wanted = [8.5 / 9.5, 7.5 / 8.5, 7.5 / 8.5, 8.5 / 9.5, 0.0];
        found.iter().zip(wanted).for_each(|(&found, wanted)| close(found, wanted));
        let mean = silhouette(points, &clustering, &Key::new(0)).unwrap();
        close(mean, wanted.iter().sum::<f64>() / 5.0);
        assert_eq!(silhouettes(points, &clustering, &[4, 0]).unwrap(), [found[4], found[0]]);
        // A point in the wrong cluster: a = 9.5, b = 1; equal points apart: 0.
        let (points, wrong) = clustered(&values[..4], 1, &[1, 0, 1, 1]);
        close(silhouettes(points, &wrong, &[0]).unwrap()[0], (1.0 - 9.5) / 9.5);
        let (points, equal) = clustered(&[2.0; 4], 1, &[0, 0, 1, 1]);
        assert_eq!(silhouette(points, &equal, &Key::new(0)), Some(0.0));
        let (points, one) = clustered(&values, 1, &[0; 5]);
        assert_eq!(silhouette(points, &one, &Key::new(0)), None);
    }

    #[test]
    fn silhouettes_agree_with_the_plain_loop() {
        let mut random = Key::new(1).rng();
        let values: Vec<f64> = (0..3 * 157).map(|_| random.random()).collect();
        let labels: Vec<usize> = (0..157).map(|_| random.random_range(0..4)).collect();
        let (points, clustering) = clustered(&values, 3, &labels);
        let all: Vec<usize> = (0..157).collect();
        for (point, found) in silhouettes(points, &clustering, &all).unwrap().into_iter().enumerate() {
            let own = clustering.labels[point];
            let mean = |cluster: usize| {
                let members = (0..157).filter(|&other| other != point && clustering.labels[other] == cluster);
                let distances: Vec<f64> = members.map(|other| distance(points.row(point), points.row(other))).collect();
                distances.iter().sum::<f64>() / distances.len() as f64
            };
            let (a, b) = (mean(own), (0..4).filter(|&k| k != own).map(mean).fold(f64::INFINITY, f64::min));
            close(found, (b - a) / a.max(b));
        }
    }

    #[test]
    fn a_sample_stands_for_many_points() {
        let mut random = Key::new(2).rng();
        let labels: Vec<usize> = (0..SILHOUETTE_ALL + 1).map(|point| point % 2).collect();
        let values: Vec<f64> = labels.iter().map(|&label| 3.0 * label as f64 + random.random::<f64>()).collect();
        let (points, clustering) = clustered(&values, 1, &labels);
        // Within a cluster, uniform on [0, 1], the mean distance of x is (x² + (1 − x)²) / 2, that to the other one 3 ± the
        // distance to the middle: for the lower cluster 3.5 − x. The mean of 1 − a/b over x is
        // 1 − ∫ (x² − x + ½) / (3.5 − x) dx = 1 − (9.25 ln 1.4 − 3).
        let wanted = 4.0 - 9.25 * 1.4_f64.ln();
        let [first, second] = [0, 1].map(|seed| silhouette(points, &clustering, &Key::new(seed)).unwrap());
        assert!((first - wanted).abs() < 0.01 && (second - wanted).abs() < 0.01, "{first} {second}, want {wanted}");
        assert_ne!(first, second);
    }

    #[test]
    fn separability_by_hand() {
        // Centres (1, 0), (7, 8) and (30, 0); the first two are 10 apart; radii 1, 2 and 0.
        let values = [0.0, 0.0, 2.0, 0.0, 7.0, 6.0, 7.0, 10.0, 30.0, 0.0];
        let (points, clustering) = clustered(&values, 2, &[0, 0, 1, 1, 2]);
        close(separability(points, &clustering).unwrap(), 5.0);
        close(separability_for_kmeans(&clustering), 2.0 + 200.0 * 5f64.sqrt());
        close(separability_for_convex(&clustering), 16.0);
        let (points, tight) = clustered(&[1.0, 1.0, 4.0], 1, &[0, 0, 1]);
        assert_eq!(separability(points, &tight), Some(f64::INFINITY));
        let (points, one) = clustered(&[1.0, 3.0], 1, &[0, 0]);
        assert_eq!(separability(points, &one), None);
        assert_eq!(separability_for_convex(&one), 0.0);
        let (points, same) = clustered(&[1.0, 1.0], 1, &[0, 1]);
        assert_eq!(separability(points, &same), Some(0.0));
    }

    #[test]
    fn centre_separation_by_hand() {
        // Residuals ±3 along the first axis twice and ±1 along the second twice: ‖A − C‖ = √36, ‖A − C‖_F = √40, so the
        // Frobenius norm is below √2 · 6. Δ = √40 / 2 for both, centres are 20 apart.
        let values = [-3.0, 0.0, 3.0, 0.0, 0.0, 1.0, 0.0, -1.0, 17.0, 0.0, 23.0, 0.0, 20.0, 1.0, 20.0, -1.0];
        let labels = [0, 0, 0, 0, 1, 1, 1, 1];
        let (points, clustering) = clustered(&values, 2, &labels);
        close(centre_separation(points, &clustering).unwrap(), 20.0 / 40f64.sqrt());
        // In many directions the spectral norm counts: eight residuals ±1 along four axes: ‖A − C‖ = √2, Frobenius √8,
        // √2 · √2 = 2 is smaller. Centres 10 apart along a fifth axis, Δ = 2 / 2.
        let mut values = vec![0.0; 40];
        for (point, row) in values.chunks_exact_mut(5).enumerate() {
            row[point / 2] = if point % 2 == 0 { 1.0 } else { -1.0 };
            row[4] = if labels[point] == 0 { 0.0 } else { 10.0 };
        }
        let (points, clustering) = clustered(&values, 5, &labels);
        close(centre_separation(points, &clustering).unwrap(), 5.0);
        let (points, tight) = clustered(&[1.0, 1.0, 4.0], 1, &[0, 0, 1]);
        assert_eq!(centre_separation(points, &tight), Some(f64::INFINITY));
        let (points, one) = clustered(&[1.0, 3.0], 1, &[0, 0]);
        assert_eq!(centre_separation(points, &one), None);
    }

    #[test]
    fn proximity_by_hand() {
        // Centres 0 and 10, residuals ±2 and ±1: ‖A − C‖ = √10, 1/√2 twice: the right side is c √20.
        // Left sides: −2: 12 − 2; 2: 8 − 2; 9: 9 − 1; 11: 11 − 1.
        let values = [-2.0, 2.0, 9.0, 11.0];
        let (points, clustering) = clustered(&values, 1, &[0, 0, 1, 1]);
        let found = proximity(points, &clustering, 7.0 / 20f64.sqrt()).unwrap();
        close(found.largest, 6.0 / 20f64.sqrt());
        assert_eq!(found.share, 0.75);
        // A point on the wrong side; the second column lies across the line and changes the norm alone.
        let (points, wrong) = clustered(&[0.0, 0.0, 9.0, 0.0, 0.0, 0.0, 10.0, 0.0], 2, &[0, 0, 0, 1]);
        assert!(proximity(points, &wrong, 0.0).unwrap().largest < 0.0);
        assert_eq!(proximity(points, &wrong, 0.0).unwrap().share, 0.75);
        let (points, tight) = clustered(&[1.0, 1.0, 4.0], 1, &[0, 0, 1]);
        assert_eq!(proximity(points, &tight, 1e9), Some(Proximity { largest: f64::INFINITY, share: 1.0 }));
        let (points, one) = clustered(&[1.0, 3.0], 1, &[0, 0]);
        assert_eq!(proximity(points, &one, 1.0), None);
    }

    #[test]
    fn recovery_interval_by_hand() {
        // Diameters 2 of two points and 3 of three: 1 and 1. Centres 1 and 21.5: 20.5 / (10 − 5).
        let values = [0.0, 2.0, 20.0, 21.5, 23.0];
        let (points, clustering) = clustered(&values, 1, &[0, 0, 1, 1, 1]);
        let found = recovery_interval(points, &clustering);
        assert_eq!(found, RecoveryInterval { lower: 1.0, upper: 4.1 });
        assert!(found.contains(1.0) && found.contains(4.0) && !found.contains(4.1) && !found.contains(0.9));
        let (points, mixed) = clustered(&values, 1, &[0, 1, 0, 1, 0]);
        let mixed = recovery_interval(points, &mixed);
        assert!(mixed.lower >= mixed.upper);
        let (points, one) = clustered(&values, 1, &[0; 5]);
        assert_eq!(recovery_interval(points, &one), RecoveryInterval { lower: 4.6, upper: f64::INFINITY });
        let (points, alone) = clustered(&values[..3], 1, &[0, 1, 2]);
        assert_eq!(recovery_interval(points, &alone), RecoveryInterval { lower: 0.0, upper: 0.5 });
    }

    #[test]
    fn diameters_agree_with_the_plain_loop() {
        let mut random = Key::new(3).rng();
        for count in [1, 2, 13, 49, 150] {
            let values: Vec<f64> = (0..2 * count).map(|_| random.random()).collect();
            let points = Points::new(&values, 2).unwrap();
            let members: Vec<usize> = (0..count).collect();
            let pairs = members.iter().flat_map(|&a| (0..count).map(move |b| distance(points.row(a), points.row(b))));
            close(diameter(points, &members), pairs.fold(0.0, f64::max));
        }
    }
}
