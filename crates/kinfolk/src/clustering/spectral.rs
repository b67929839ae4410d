//! Spectral k-means (Kumar and Kannan; Algorithm 2 of "A One-shot Framework for Distributed Clustered Learning"):
//!
//! ```text
//! I    project the data A on its top K singular vectors, giving Â; run an approximation algorithm for k-means on Â
//! II   core points S_k = {i : ‖â_i − ν_k‖ ≤ ⅓ ‖â_i − ν_l‖ for all l ≠ k}; ν_k = mean of a_i over S_k
//! III  Lloyd's iteration on A from ν
//! ```
//!
//! The approximation of part I is the best of several k-means++ starts with Lloyd's iteration. A centre without core
//! points keeps its place of part I. Points are projected to coordinates in the singular vectors: the distances are the
//! same, with K numbers per point instead of d.
//!
//! The singular vectors come from a thin singular value decomposition rather than from a Gram matrix: squaring would
//! lose all directions 10⁸ times weaker than the first one, as in data far from 0. Tall data is first reduced, block by
//! block, to a triangular matrix with the same singular values and right vectors. Directions without variance are left
//! out; then the projection preserves all distances. The decomposition is a whole one: the rank, and all singular
//! values, are wanted besides the few vectors, and a partial decomposition does not have them.

use super::kmeans::Options;
use super::*;
use crate::error::ErrorKind;
use crate::num::cpu::clearing;
use crate::num::{self, Matrix};
use faer::MatRef;
use faer::linalg::solvers::{Qr, Svd};

pub(super) fn cluster(points: Points, clusters: usize, options: &Options, key: &Key) -> Result<KMeans> {
    options.check()?;
    check_clusters(points, clusters)?;
    let projection = Projection::new(points, clusters)?;
    // At least K of the projected points are distinct: they span min(K, rank) dimensions, and where the rank is smaller
    // than K nothing was projected away.
    let projected = Points::new(&projection.coordinates, projection.directions)?;
    let initial = kmeans::cluster(projected, clusters, options, &key.clone().word("spectral"))?;
    kmeans::lloyd(points, &refine(points, &projection, &initial), options.iterations)
}

/// Part II.
fn refine(points: Points, projection: &Projection, initial: &KMeans) -> Vec<f64> {
    let dimension = points.dimension();
    let clustering = &initial.clustering;
    let mut centres = vec![0.0; clustering.clusters() * dimension];
    let mut cores = vec![0_usize; clustering.clusters()];
    for (point, projected) in projection.coordinates.chunks_exact(projection.directions).enumerate() {
        let own = clustering.labels[point];
        let reach = 9.0 * squared_distance(projected, clustering.centre(own));
        let others = (0..clustering.clusters()).filter(|&other| other != own);
        if others.into_iter().all(|other| reach <= squared_distance(projected, clustering.centre(other))) {
            cores[own] += 1;
            add_scaled(&mut centres[own * dimension..(own + 1) * dimension], 1.0, points.row(point));
        }
    }
    for (cluster, (centre, &core)) in centres.chunks_exact_mut(dimension).zip(&cores).enumerate() {
        match core {
            0 => projection.lift(clustering.centre(cluster), centre),
            _ => centre.iter_mut().for_each(|value| *value /= core as f64),
        }
    }
    centres
}

/// Points in coordinates of the top right singular vectors.
pub(super) struct Projection {
    /// Row-major, one row per point.
    pub(super) coordinates: Vec<f64>,
    pub(super) directions: usize,
    /// The singular values of all directions, including those left out.
    pub(super) singular: Vec<f64>,
    /// One column per direction, row-major.
    vectors: Vec<f64>,
}

impl Projection {
    pub(super) fn new(points: Points, most: usize) -> Result<Self> {
        let dimension = points.dimension();
        let (rows, values) = reduce(points.values(), dimension);
        let matrix = MatRef::from_row_major_slice(&values, rows, dimension);
        let failed = |_| Error::new(ErrorKind::Diverged, "points: the singular value decomposition did not converge");
        let svd = clearing(|| Svd::new_thin(matrix)).map_err(failed)?;
        let singular = |direction: usize| svd.S()[direction];
        let cutoff = singular(0) * f64::EPSILON * points.count().max(dimension) as f64;
        let rank = (0..rows.min(dimension)).take_while(|&direction| singular(direction) > cutoff).count();
        let directions = rank.min(most).max(1);
        let vectors: Vec<f64> = (0..dimension)
            .flat_map(|row| (0..directions).map(move |direction| (row, direction)))
            .map(|at| svd.V()[at])
            .collect();
        let singular = (0..rank).map(singular).collect();
        let mut projection = Self { coordinates: Vec::new(), directions, singular, vectors };
        projection.coordinates = projection.project(points);
        Ok(projection)
    }

    pub(super) fn project(&self, points: Points) -> Vec<f64> {
        let (dimension, directions) = (points.dimension(), self.directions);
        let mut coordinates = vec![0.0; points.count() * directions];
        (coordinates.par_chunks_mut(BLOCK * directions)).zip(points.values().par_chunks(BLOCK * dimension)).for_each(
            |(out, rows)| {
                let rows = Matrix::new(rows, rows.len() / dimension, dimension);
                num::multiply(out, 1.0, rows, Matrix::new(&self.vectors, dimension, directions));
            },
        );
        coordinates
    }

    /// One of the directions; `None` where there is no variance in it.
    pub(super) fn direction(&self, place: usize) -> Option<Vec<f64>> {
        let exists = place < self.directions.min(self.singular.len());
        exists.then(|| self.vectors.iter().skip(place).step_by(self.directions).copied().collect())
    }

    pub(super) fn keep(&mut self, directions: usize) {
        let first =
            |values: &[f64]| values.chunks_exact(self.directions).flat_map(|row| &row[..directions]).copied().collect();
        (self.coordinates, self.vectors) = (first(&self.coordinates), first(&self.vectors));
        self.directions = directions;
    }

    /// The point of the full space that has these coordinates.
    pub(super) fn lift(&self, coordinates: &[f64], out: &mut [f64]) {
        for (out, row) in out.iter_mut().zip(self.vectors.chunks_exact(self.directions)) {
            *out = row.iter().zip(coordinates).map(|(a, b)| a * b).sum();
        }
    }
}

const BLOCK: usize = 2048;

/// A matrix with the same singular values and right singular vectors, and not many more rows than columns: its number of
/// rows, and its values, row-major.
fn reduce(values: &[f64], dimension: usize) -> (usize, Vec<f64>) {
    let rows = values.len() / dimension;
    let block = BLOCK.max(4 * dimension);
    if rows <= block {
        return (rows, values.to_vec());
    }
    let triangles: Vec<Vec<f64>> = (values.par_chunks(block * dimension))
        .map(|block| {
            let rows = block.len() / dimension;
            let triangle = clearing(|| Qr::new(MatRef::from_row_major_slice(block, rows, dimension)));
            let triangle = triangle.thin_R();
            let positions = (0..triangle.nrows()).flat_map(|row| (0..dimension).map(move |column| (row, column)));
            positions.map(|at| triangle[at]).collect()
        })
        .collect();
    reduce(&triangles.concat(), dimension)
}

pub(super) fn spectral_norm(values: &[f64], dimension: usize) -> Option<f64> {
    let (rows, values) = reduce(values, dimension);
    let matrix = MatRef::from_row_major_slice(&values, rows, dimension);
    let singular = clearing(|| matrix.singular_values()).ok()?;
    Some(singular.into_iter().fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clustering::kmeans::finish;
    use crate::clustering::lloyd;
    use crate::clustering::quality::misclustering;
    use rand::RngExt;
    use rand_distr::StandardNormal;

    fn blobs(count: usize, dimension: usize, clusters: usize, spread: f64, offset: f64) -> (Vec<f64>, Vec<usize>) {
        let mut random = Key::new(6).rng();
        let middles: Vec<f64> = (0..clusters * dimension).map(|_| random.sample(StandardNormal)).collect();
        let at = |index: usize| offset + middles[index / dimension % clusters * dimension + index % dimension];
        let values =
            (0..count * dimension).map(|index| at(index) + spread * random.sample::<f64, _>(StandardNormal)).collect();
        (values, (0..count).map(|point| point % clusters).collect())
    }

    #[test]
    fn recovers_planted_clusters() {
        // Tall, wide, tall enough to be reduced, and far from 0.
        for (count, dimension, clusters, offset) in
            [(200, 5, 4, 0.0), (30, 80, 3, 0.0), (5000, 6, 3, 0.0), (200, 5, 4, 1e7)]
        {
            let (values, truth) = blobs(count, dimension, clusters, 0.05, offset);
            let points = Points::new(&values, dimension).unwrap();
            let whole = cluster(points, clusters, &Options::default(), &Key::new(0)).unwrap();
            assert_eq!(whole.clustering.labels, truth);
            assert!(whole.converged);
        }
    }

    #[test]
    fn projection_helps_where_noise_is_wide() {
        let (values, truth) = blobs(300, 100, 3, 0.9, 0.0);
        let points = Points::new(&values, 100).unwrap();
        let found = cluster(points, 3, &Options::default(), &Key::new(0)).unwrap();
        assert_eq!(misclustering(&found.clustering.labels, &truth), 0.0);
    }

    #[test]
    fn projection_keeps_what_lies_in_the_top_directions() {
        // Columns of length 10, 5 and 1 along the axes: two directions keep the first two columns, up to signs.
        let values = [10.0, 0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 1.0];
        let projection = Projection::new(Points::new(&values, 3).unwrap(), 2).unwrap();
        let wanted = [10.0, 0.0, 0.0, 5.0, 0.0, 0.0];
        projection
            .coordinates
            .iter()
            .zip(wanted)
            .for_each(|(found, wanted)| assert!((found.abs() - wanted).abs() < 1e-12));
        let mut lifted = [0.0; 3];
        projection.lift(&projection.coordinates[2..4], &mut lifted);
        lifted.iter().zip([0.0, 5.0, 0.0]).for_each(|(found, wanted)| assert!((found - wanted).abs() < 1e-12));
        assert!((spectral_norm(&values, 3).unwrap() - 10.0).abs() < 1e-12);
    }

    #[test]
    fn reducing_keeps_singular_values() {
        let (values, _) = blobs(9000, 3, 2, 1.0, 3.0);
        let (rows, reduced) = reduce(&values, 3);
        assert!(rows < 100);
        let norm = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
        assert!((norm(&reduced) / norm(&values) - 1.0).abs() < 1e-12);
        // The same Gram matrix.
        let gram = |values: &[f64], a: usize, b: usize| values.chunks(3).map(|row| row[a] * row[b]).sum::<f64>();
        for (a, b) in [(0, 0), (0, 1), (1, 2), (2, 2)] {
            assert!((gram(&reduced, a, b) / gram(&values, a, b) - 1.0).abs() < 1e-10);
        }
    }

    #[test]
    fn core_points_by_hand() {
        // Centres at 0 (of −1, 0, 1) and 8 (of 4 and 12): 4 and 12 are not core points, for 3 · 4 > 4 and 3 · 4 ≤ 12.
        let values = [-1.0, 0.0, 1.0, 4.0, 12.0];
        let points = Points::new(&values, 1).unwrap();
        let projection = Projection::new(points, 2).unwrap();
        let sign = projection.vectors[0];
        let start: Vec<f64> = [0.0, 8.0].iter().map(|value| value * sign).collect();
        let projected = Points::new(&projection.coordinates, 1).unwrap();
        let initial = kmeans::lloyd(projected, &start, 1).unwrap();
        assert_eq!(initial.clustering.labels, [0, 0, 0, 0, 1]);
        // A tie went to the lower centre: {−1, 0, 1, 4} around 1 and {12}. Core: 3 · 2 ≤ 13, 3 · 1 ≤ 12, 0, 3 · 3 > 8.
        assert_eq!(refine(points, &projection, &initial), [0.0, 12.0]);
    }

    #[test]
    fn centres_without_core_points_are_lifted_back() {
        // In the plane around (±1, 0, 5): {(1, ±3)} and {(−1, ±3)} have no core points, for 3 · 3 > √(4 + 9).
        let values = [1.0, 3.0, 5.0, 1.0, -3.0, 5.0, -1.0, 3.0, 5.0, -1.0, -3.0, 5.0];
        let points = Points::new(&values, 3).unwrap();
        let projection = Projection::new(points, 3).unwrap();
        let labels = [0, 0, 1, 1];
        let projected = Points::new(&projection.coordinates, projection.directions).unwrap();
        let initial = finish(projected, lloyd::Rest { labels: labels.to_vec(), iterations: 1, converged: true });
        let centres = refine(points, &projection, &initial);
        centres
            .iter()
            .zip([1.0, 0.0, 5.0, -1.0, 0.0, 5.0])
            .for_each(|(a, b)| assert!((a - b).abs() < 1e-12, "{centres:?}"));
    }

    #[test]
    fn degenerate_points() {
        let run = |values: &[f64], dimension, clusters| {
            let points = Points::new(values, dimension)?;
            Ok::<_, Error>(cluster(points, clusters, &Options::default(), &Key::new(0))?.clustering.labels)
        };
        assert_eq!(run(&[3.0, 4.0], 2, 1).unwrap(), [0]);
        assert_eq!(run(&[0.0, 0.0], 1, 1).unwrap(), [0, 0]);
        assert_eq!(run(&[0.0, 0.0, 1.0], 1, 2).unwrap(), [0, 0, 1]);
        assert_eq!(run(&[2.0; 9], 3, 1).unwrap(), [0, 0, 0]);
        // More clusters than the rank, every point its own; a constant column.
        assert_eq!(run(&[1.0, 5.0, 2.0, 5.0, 3.0, 5.0, 4.0, 5.0], 2, 4).unwrap(), [0, 1, 2, 3]);
        assert_eq!(run(&[1.0, 0.0, 2.0, 0.0, 8.0, 0.0, 9.0, 0.0], 4, 2).unwrap(), [0, 1]);
        assert!(run(&[2.0; 9], 3, 2).unwrap_err().to_string().contains("want at most 1"));
    }
}
