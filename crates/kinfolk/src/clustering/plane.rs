//! The plane in which points are looked at: their two principal directions.

use super::Points;
use crate::linalg::{self, Matrix};
use crate::rng::Key;
use faer::{MatRef, Side};
use rand_distr::{Distribution, StandardNormal};

/// More rows than these turn a direction no further than the eye can see.
const MOST_ROWS: usize = 10_000;
/// Directions iterated together: the spare ones make the first two converge.
const WIDTH: usize = 8;
/// Rounds at most. Where two directions carry the same spread, any mixture of them is as good.
const ROUNDS: usize = 60;

/// The mean of points and the two directions in which they spread most.
#[derive(Debug, Clone, PartialEq)]
pub struct Plane {
    mean: Vec<f64>,
    /// Orthonormal; 0 where points spread in fewer than two directions.
    directions: [Vec<f64>; 2],
}

impl Plane {
    /// The plane of these points, by subspace iteration.
    pub fn of(points: Points) -> Self {
        let dimension = points.dimension();
        let stride = points.count().div_ceil(MOST_ROWS);
        let rows = || (0..points.count()).step_by(stride).map(|point| points.row(point));
        let count = rows().count();
        let mut mean = vec![0.0; dimension];
        rows().for_each(|row| linalg::add_scaled(&mut mean, 1.0 / count as f64, row));
        let mut centred: Vec<f64> = rows().flat_map(|row| row.iter().zip(&mean).map(|(a, b)| a - b)).collect();
        // Squares of very large or small numbers would leave the range.
        let largest = centred.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let directions = if largest > 0.0 {
            centred.iter_mut().for_each(|value| *value /= largest);
            principal(&centred, count, dimension)
        } else {
            [vec![0.0; dimension], vec![0.0; dimension]]
        };
        Self { mean, directions }
    }

    /// Where a point lies in the plane.
    pub fn project(&self, point: &[f64]) -> [f64; 2] {
        let along = |direction: &Vec<f64>| {
            let terms =
                point.iter().zip(&self.mean).zip(direction).map(|((value, mean), along)| (value - mean) * along);
            terms.sum()
        };
        [along(&self.directions[0]), along(&self.directions[1])]
    }

    /// How far a point lies from the mean in all directions, squared.
    pub fn squared_distance_from_mean(&self, point: &[f64]) -> f64 {
        point.iter().zip(&self.mean).map(|(value, mean)| (value - mean).powi(2)).sum()
    }
}

/// The two directions of largest spread of centred rows.
fn principal(rows: &[f64], count: usize, dimension: usize) -> [Vec<f64>; 2] {
    let width = WIDTH.min(dimension);
    let mut random = Key::new(0).word("plane").rng();
    // One row a direction.
    let mut block: Vec<f64> = (0..width * dimension).map(|_| StandardNormal.sample(&mut random)).collect();
    let data = || Matrix::new(rows, count, dimension);
    let mut along = vec![0.0; count * width];
    let mut spreads = [0.0; 2];
    for _ in 0..ROUNDS {
        orthonormalise(&mut block, dimension);
        linalg::multiply(&mut along, 1.0, data(), Matrix::new(&block, width, dimension).turn());
        let mut inner = vec![0.0; width * width];
        let seen = || Matrix::new(&along, count, width);
        linalg::multiply(&mut inner, 1.0, seen().turn(), seen());
        // Turned so that the directions carry their spreads in falling order.
        let Ok(eigen) = MatRef::from_row_major_slice(&inner, width, width).self_adjoint_eigen(Side::Lower) else {
            break;
        };
        let turn: Vec<f64> = (0..width * width).map(|at| eigen.U()[(at % width, width - 1 - at / width)]).collect();
        let before = spreads;
        spreads = [0, 1].map(|place| if place < width { eigen.S()[width - 1 - place].max(0.0) } else { 0.0 });
        let settled = (0..2).all(|place| (spreads[place] - before[place]).abs() <= 1e-12 * spreads[0]);
        let mut turned = vec![0.0; block.len()];
        linalg::multiply(&mut turned, 1.0, Matrix::new(&turn, width, width), Matrix::new(&block, width, dimension));
        block.copy_from_slice(&turned);
        if settled {
            break;
        }
        let mut next = vec![0.0; block.len()];
        linalg::multiply(&mut along, 1.0, data(), Matrix::new(&block, width, dimension).turn());
        linalg::multiply(&mut next, 1.0, Matrix::new(&along, count, width).turn(), data());
        block = next;
    }
    orthonormalise(&mut block, dimension);
    [0, 1].map(|place| {
        let spread = spreads[place] > 1e-24 * spreads[0];
        let mut direction = match block.chunks_exact(dimension).nth(place) {
            Some(direction) if spread => direction.to_vec(),
            _ => vec![0.0; dimension],
        };
        // Which way it points is free; the largest part is positive.
        let largest =
            direction.iter().copied().fold(0.0_f64, |most, part| if part.abs() > most.abs() { part } else { most });
        if largest < 0.0 {
            direction.iter_mut().for_each(|part| *part = -*part);
        }
        direction
    })
}

/// Gram and Schmidt, twice: once leaves rounding behind. What depends on earlier rows becomes 0.
fn orthonormalise(block: &mut [f64], dimension: usize) {
    for row in 0..block.len() / dimension {
        let (earlier, rest) = block.split_at_mut(row * dimension);
        let current = &mut rest[..dimension];
        let before = norm(current);
        for _ in 0..2 {
            for other in earlier.chunks_exact(dimension) {
                let along: f64 = current.iter().zip(other).map(|(a, b)| a * b).sum();
                linalg::add_scaled(current, -along, other);
            }
        }
        let length = norm(current);
        let scale = if length > 1e-12 * before { 1.0 / length } else { 0.0 };
        current.iter_mut().for_each(|part| *part *= scale);
    }
}

fn norm(vector: &[f64]) -> f64 {
    vector.iter().map(|part| part * part).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilted_cross_by_hand() {
        // Long arm along (3, 4, 0)/5, short arm along (4, -3, 0)/5, around (1, 1, 7).
        let arm = |a: f64, b: f64| [1.0 + 0.6 * a + 0.8 * b, 1.0 + 0.8 * a - 0.6 * b, 7.0];
        let values = [arm(10.0, 0.0), arm(-10.0, 0.0), arm(0.0, 2.0), arm(0.0, -2.0)].concat();
        let plane = Plane::of(Points::new(&values, 3).unwrap());
        for (place, expected) in values.chunks_exact(3).zip([[10.0, 0.0], [-10.0, 0.0], [0.0, 2.0], [0.0, -2.0]]) {
            let found = plane.project(place);
            assert!((found[0] - expected[0]).abs() < 1e-12 && (found[1] - expected[1]).abs() < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn many_columns_and_few_rows() {
        // Forty columns, five rows: along column 3 with spread 5, along column 30 with spread 1.
        let mut values = vec![0.0; 5 * 40];
        for (row, (a, b)) in [(5.0, 0.0), (-5.0, 0.0), (0.0, 1.0), (0.0, -1.0), (0.0, 0.0)].into_iter().enumerate() {
            values[row * 40 + 3] = a * 1e120;
            values[row * 40 + 30] = b * 1e120;
        }
        let plane = Plane::of(Points::new(&values, 40).unwrap());
        let found = plane.project(&values[..40]);
        assert!((found[0] / 5e120 - 1.0).abs() < 1e-12 && found[1].abs() < 1e108, "{found:?}");
    }

    #[test]
    fn fewer_directions_than_two() {
        let line = Plane::of(Points::new(&[1.0, 2.0, 6.0], 1).unwrap());
        assert_eq!(line.project(&[6.0]), [3.0, 0.0]);
        let flat = Plane::of(Points::new(&[1.0, 1.0, 2.0, 2.0, 3.0, 3.0], 2).unwrap());
        let found = flat.project(&[3.0, 3.0]);
        assert!((found[0] - 2f64.sqrt()).abs() < 1e-12 && found[1] == 0.0, "{found:?}");
        let same = Plane::of(Points::new(&[4.0, 4.0, 4.0, 4.0], 2).unwrap());
        assert_eq!(same.project(&[4.0, 4.0]), [0.0, 0.0]);
    }
}
