//! The plane in which points are drawn: their first two principal directions.

use super::spectral::Projection;
use super::*;

/// More rows do not change a direction visibly.
const MOST_ROWS: usize = 10_000;

/// The mean of points and their two directions of largest variance.
#[derive(Debug, Clone, PartialEq)]
pub struct Plane {
    mean: Vec<f64>,
    /// Orthonormal; 0 where points vary in fewer than two directions.
    directions: [Vec<f64>; 2],
}

impl Plane {
    /// The plane of these points.
    pub fn of(points: Points) -> Self {
        let dimension = points.dimension();
        let stride = points.count().div_ceil(MOST_ROWS);
        let rows = || (0..points.count()).step_by(stride).map(|point| points.row(point));
        let count = rows().count();
        let mut mean = vec![0.0; dimension];
        rows().for_each(|row| add_scaled(&mut mean, 1.0 / count as f64, row));
        let mut centred: Vec<f64> = rows().flat_map(|row| row.iter().zip(&mean).map(|(a, b)| a - b)).collect();
        // Squares of very large or small numbers would overflow or vanish.
        let largest = centred.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        centred.iter_mut().for_each(|value| *value /= largest);
        let projection = Points::new(&centred, dimension).and_then(|centred| Projection::new(centred, 2)).ok();
        let directions = [0, 1].map(|place| {
            let direction = projection.as_ref().and_then(|projection| projection.direction(place));
            let mut direction = direction.unwrap_or_else(|| vec![0.0; dimension]);
            // The sign is arbitrary: the largest component is positive.
            let larger = |most: f64, part: f64| if part.abs() > most.abs() { part } else { most };
            if direction.iter().copied().fold(0.0, larger) < 0.0 {
                direction.iter_mut().for_each(|part| *part = -*part);
            }
            direction
        });
        Self { mean, directions }
    }

    /// The coordinates of a point in the plane.
    pub fn project(&self, point: &[f64]) -> [f64; 2] {
        let along = |direction: &Vec<f64>| {
            let terms =
                point.iter().zip(&self.mean).zip(direction).map(|((value, mean), along)| (value - mean) * along);
            terms.sum()
        };
        [along(&self.directions[0]), along(&self.directions[1])]
    }

    /// The squared distance of a point from the mean, in the full space.
    pub(crate) fn squared_distance_from_mean(&self, point: &[f64]) -> f64 {
        squared_distance(point, &self.mean)
    }
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
