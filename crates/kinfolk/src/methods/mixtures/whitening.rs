//! Coordinates in which centres are compared, and the common scatter of the clients' rows.

use crate::aggregate::Location;
use crate::error::{Error, ErrorKind, Result};
use crate::mixture::{Covariance, Family, Shape};
use crate::num::{Cholesky, Matrix, Spectrum, distance, extreme_eigenvalues, multiply, norm};

/// A change of coordinates after which rows scatter around their centres with variance 1 in every direction.
pub(in crate::methods) enum Whitening {
    None,
    /// Division by a standard deviation.
    Scale(f64),
    /// Multiplication by the inverse root of a covariance.
    Matrix {
        root: Vec<f64>,
        inverse: Vec<f64>,
        columns: usize,
    },
}

impl Whitening {
    /// From what a mixture says of the scatter, where that is the same for all components, and known.
    pub(in crate::methods) fn new(shape: &Shape, scatter: &[f64]) -> Self {
        let columns = shape.columns;
        match (shape.family, scatter) {
            (Family::Gaussian(Covariance::Tied), covariance) if !covariance.is_empty() => {
                match Spectrum::new(covariance, columns).filter(|spectrum| spectrum.rank() == columns) {
                    Some(spectrum) => Whitening::Matrix {
                        root: spectrum.map(f64::sqrt),
                        inverse: spectrum.map(|value| 1.0 / value.sqrt()),
                        columns,
                    },
                    None => Whitening::None,
                }
            }
            (Family::Regression { .. }, [variance]) if *variance > 0.0 => Whitening::Scale(variance.sqrt()),
            _ => Whitening::None,
        }
    }

    /// Whitens centres, which lie end to end.
    pub(in crate::methods) fn apply(&self, centres: &mut [f64]) {
        match self {
            Whitening::None => {}
            Whitening::Scale(deviation) => centres.iter_mut().for_each(|value| *value /= deviation),
            Whitening::Matrix { inverse, columns, .. } => transform(inverse, *columns, centres),
        }
    }

    pub(in crate::methods) fn invert(&self, centres: &mut [f64]) {
        match self {
            Whitening::None => {}
            Whitening::Scale(deviation) => centres.iter_mut().for_each(|value| *value *= deviation),
            Whitening::Matrix { root, columns, .. } => transform(root, *columns, centres),
        }
    }
}

/// One scatter for everybody: a robust mean by rows of the clients' scatters that are positive definite.
pub(super) fn common_scatter<'a>(shape: &Shape, scatters: impl Iterator<Item = (&'a [f64], f64)>) -> Result<Vec<f64>> {
    if shape.scatter().is_empty() {
        return Ok(Vec::new());
    }
    let (points, counts): (Vec<&[f64]>, Vec<f64>) =
        scatters.filter(|(scatter, rows)| *rows > 0.0 && is_scatter(shape, scatter)).unzip();
    if points.is_empty() {
        return Err(Error::new(ErrorKind::Client, "no client sent a covariance that is one"));
    }
    let points = points.concat();
    let middle = Location { points: &points, counts: &counts, reach: &vec![0.0; counts.len()] }.median();
    let away = points.chunks_exact(middle.len()).map(|point| distance(point, &middle));
    let mut sorted: Vec<f64> = away.collect();
    sorted.sort_by(f64::total_cmp);
    // Half of the clients are within reach; where they all agree, anything above rounding is.
    let reach = sorted[sorted.len() / 2].max(1e-9 * norm(&middle));
    let reach = vec![reach; counts.len()];
    Ok(Location { points: &points, counts: &counts, reach: &reach }.centre(Some(&middle), CENTRE_TOLERANCE))
}

/// Notes about the scatter in the fits that a model of this shape may not suit.
pub(super) fn notes(fit: &Shape, scatter: &[f64], model: &Shape) -> Vec<String> {
    let mut notes = Vec::new();
    let variances: Vec<f64> = match fit.family {
        Family::Gaussian(Covariance::Tied) => scatter.iter().step_by(fit.columns + 1).copied().collect(),
        Family::Regression { .. } => scatter.to_vec(),
        Family::Gaussian(_) => Vec::new(),
    };
    if variances.is_empty() {
        return notes;
    }
    let mean = variances.iter().sum::<f64>() / variances.len() as f64;
    if model.scatter().is_empty() && !(0.25..4.0).contains(&mean) {
        let (of, setting) = match model.family {
            Family::Gaussian(_) => ("rows scatter around their centres", "covariance = \"tied\""),
            Family::Regression { .. } => ("targets scatter around their regression", "noise = \"common\""),
        };
        notes.push(format!(
            "{of} with a variance of {mean:.3}, and the model takes it for 1: set {setting}, or scale the data"
        ));
    }
    if let Family::Gaussian(Covariance::Tied) = fit.family {
        let size = fit.columns;
        let of = |row: usize, column: usize| {
            scatter[row * size + column] / (variances[row] * variances[column]).sqrt().max(f64::MIN_POSITIVE)
        };
        let correlations: Vec<f64> = (0..size * size).map(|place| of(place / size, place % size)).collect();
        let flat = variances.iter().any(|variance| *variance <= FLAT * mean);
        if flat || extreme_eigenvalues(&correlations, size).0 < FLAT {
            notes.push(
                "a column hardly varies inside components, or follows from the others: likelihoods mean little then, and \
                 data.drop leaves such columns out"
                    .to_string(),
            );
        }
    }
    notes
}

/// A share of the usual variance that is practically zero.
const FLAT: f64 = 1e-5;

/// Tolerance of the common scatter.
const CENTRE_TOLERANCE: f64 = 1e-8;

/// Whether variances are above 0, and covariances positive definite.
fn is_scatter(shape: &Shape, scatter: &[f64]) -> bool {
    let size = shape.columns;
    match shape.family {
        Family::Gaussian(Covariance::Tied | Covariance::Full) => {
            scatter.chunks_exact(size * size).all(|matrix| Cholesky::new(matrix, size).is_some())
        }
        _ => scatter.iter().all(|variance| *variance > 0.0),
    }
}

/// Multiplies every centre by a matrix.
fn transform(matrix: &[f64], columns: usize, centres: &mut [f64]) {
    let old = centres.to_vec();
    multiply(
        centres,
        1.0,
        Matrix::new(&old, old.len() / columns, columns),
        Matrix::new(matrix, columns, columns).transpose(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitened_distances_are_those_of_the_covariance() {
        let shape = Shape { family: Family::Gaussian(Covariance::Tied), components: 1, columns: 2 };
        let whitening = Whitening::new(&shape, &[4.0, 1.0, 1.0, 2.0]);
        let mut centres = [1.0, 2.0, -3.0, 0.5];
        whitening.apply(&mut centres);
        // (1, 2)·Σ⁻¹·(1, 2) with Σ⁻¹ = [[2, -1], [-1, 4]]/7: (2 − 4 + 16)/7.
        assert!((centres[0].powi(2) + centres[1].powi(2) - 2.0).abs() < 1e-12);
        whitening.invert(&mut centres);
        assert!(centres.iter().zip([1.0, 2.0, -3.0, 0.5]).all(|(a, b)| (a - b).abs() < 1e-12));
    }

    #[test]
    fn a_common_scatter_is_hardly_moved_by_odd_ones() {
        let shape = Shape { family: Family::Gaussian(Covariance::Tied), components: 1, columns: 1 };
        let of = |sent: &[f64]| {
            common_scatter(&shape, sent.iter().map(|value| (std::slice::from_ref(value), 10.0))).map(|found| found[0])
        };
        assert!((of(&[2.0, 2.0, 2.0]).unwrap() - 2.0).abs() < 1e-9);
        for far in [50.0, 2e6, 2e12] {
            let odd = of(&[2.0, 2.1, 1.9, far, -3.0]).unwrap();
            assert!((odd - 2.0).abs() < 0.2, "{odd}");
        }
        assert!(of(&[-1.0]).is_err());
    }

    #[test]
    fn scatter_that_says_little_is_named() {
        let shape = |covariance, columns| Shape { family: Family::Gaussian(covariance), components: 1, columns };
        let (tied, identity) = (shape(Covariance::Tied, 2), shape(Covariance::Identity, 2));
        assert!(notes(&tied, &[1.0, 0.2, 0.2, 2.0], &tied).is_empty());
        assert!(notes(&tied, &[1.0, 0.2, 0.2, 2.0], &identity).is_empty());
        assert!(notes(&tied, &[9.0, 0.2, 0.2, 20.0], &identity)[0].contains("a variance of 14.500"));
        assert!(notes(&tied, &[1.0, 1.0, 1.0, 1.0], &tied)[0].starts_with("a column hardly varies"));
        assert!(notes(&tied, &[1e-9, 0.0, 0.0, 1.0], &tied)[0].starts_with("a column hardly varies"));
        assert!(notes(&tied, &[], &tied).is_empty());
    }
}
