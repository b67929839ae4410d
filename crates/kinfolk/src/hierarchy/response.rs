//! One level of the hierarchy, integrated out: a quadratic in the centre above it.
//!
//! A level has a quadratic loss, `½θᵀAθ − bᵀθ + e`, and is held to its centre `w` with strength `γ`, that is
//! `θ ~ N(w, I/γ)`. With `θ` integrated out, with `N = γ(A + γI)⁻¹` and `K = I − N = A(A + γI)⁻¹`,
//!
//! `−log ∫ = ½wᵀSw − sᵀw + energy + volume`, where `S = γK`, `s = Nb`, `energy = e − bᵀNb/2γ`, `volume = ½log|I + A/γ|`.
//!
//! This is a quadratic in `w`, so that the next level up can do the same with a sum of them. Everything is computed
//! from `A/γ`, with `S` as a product and not as a difference: small `A` keep their digits, singular ones do no harm.

use crate::num::{Matrix, Spectrum, add_scaled, dot, multiply, solve_factored};
use serde::{Deserialize, Serialize};

/// Of a diagonal entry, how far below zero rounding may push what is left of it.
const ROUNDING: f64 = 1e-10;
/// Of the largest diagonal entry, a strength that rounding can hide in directions without data.
const FAINT: f64 = 1e-12;

/// A quadratic loss `½θᵀAθ − bᵀθ + e`; for linear regression with noise of variance 1, `XᵀX`, `Xᵀy` and `½yᵀy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quadratic {
    /// `A`, symmetric positive semidefinite, row-major.
    pub(crate) curvature: Vec<f64>,
    /// `b`.
    pub(crate) moment: Vec<f64>,
    /// `e`, its value at zero.
    pub(crate) energy: f64,
}

/// What a level says of its centre, up to constants; or the derivative of that in the strength.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Response {
    /// `S`, row-major.
    pub curvature: Vec<f64>,
    /// `s`.
    pub moment: Vec<f64>,
    /// The smallest loss at the centre zero.
    pub energy: f64,
    /// Half the logarithm of the determinant that integrating the level out leaves.
    pub volume: f64,
}

impl Quadratic {
    pub(crate) fn dimension(&self) -> usize {
        self.moment.len()
    }

    pub(crate) fn add_scaled(&mut self, factor: f64, other: &Self) {
        add_scaled(&mut self.curvature, factor, &other.curvature);
        add_scaled(&mut self.moment, factor, &other.moment);
        self.energy += factor * other.energy;
    }

    /// What it says of a centre it is held to with this strength: nothing with strength 0, and all it knows, that is
    /// itself, with an infinite one. `None` where the strength is negative, or the curvature is not positive semidefinite.
    pub(crate) fn respond(&self, strength: f64) -> Option<Response> {
        let size = self.dimension();
        let mut response = Response::zero(size);
        if strength.is_nan() || strength < 0.0 {
            return None;
        }
        if strength == 0.0 {
            response.energy = self.energy - 0.5 * dot(&self.moment, &self.minimiser(0.0, &[])?);
            return Some(response);
        }
        (response.curvature, response.moment) = (self.curvature.clone(), self.moment.clone());
        if strength == f64::INFINITY {
            return Some(Response { energy: self.energy, ..response });
        }
        if self.hides(strength) {
            let spectrum = Spectrum::new(&self.curvature, size)?;
            response.curvature = spectrum.map(|value| strength * value / (value + strength));
            response.moment = spectrum.apply(|value| strength / (value + strength), &self.moment);
            response.volume = 0.5 * spectrum.sum(|value| (value / strength).ln_1p());
        } else {
            let (factor, log_determinant) = self.factor(strength)?;
            response.volume = 0.5 * log_determinant;
            solve_factored(&factor, &mut response.moment, size, 1);
            solve_factored(&factor, &mut response.curvature, size, size);
            make_symmetric(&mut response.curvature, size);
        }
        response.energy = self.energy - 0.5 * dot(&self.moment, &response.moment) / strength;
        Some(response)
    }

    /// The same, and its derivative in the strength, which must not be 0.
    pub(crate) fn respond_with_slope(&self, strength: f64) -> Option<(Response, Response)> {
        let size = self.dimension();
        let response = self.respond(strength).filter(|_| strength > 0.0)?;
        let mut slope = Response::zero(size);
        if strength < f64::INFINITY {
            let scale = 1.0 / (strength * strength);
            let pull = Matrix::new(&response.curvature, size, size);
            multiply(&mut slope.curvature, scale, pull, pull);
            multiply(&mut slope.moment, scale, pull, Matrix::new(&response.moment, size, 1));
            slope.energy = 0.5 * dot(&response.moment, &response.moment) / (strength * strength);
            slope.volume = -0.5 * trace(&response.curvature, size) / (strength * strength);
        }
        Some((response, slope))
    }

    /// The parameters of smallest loss when held to `centre` with this strength. With strength 0 the centre does not
    /// matter, and of many minimisers it is the one of smallest norm.
    pub(crate) fn minimiser(&self, strength: f64, centre: &[f64]) -> Option<Vec<f64>> {
        let size = self.dimension();
        if strength == 0.0 {
            return Some(Spectrum::new(&self.curvature, size)?.solve(&self.moment));
        }
        if strength == f64::INFINITY {
            return Some(centre.to_vec());
        }
        // w + N(b − Aw)/γ.
        let mut moved = self.moment.clone();
        for (value, row) in moved.iter_mut().zip(self.curvature.chunks_exact(size)) {
            *value -= dot(row, centre);
        }
        if self.hides(strength) {
            let spectrum = Spectrum::new(&self.curvature, size)?;
            moved = spectrum.apply(|value| strength / (value + strength), &moved);
        } else {
            solve_factored(&self.factor(strength)?.0, &mut moved, size, 1);
        }
        let mut minimiser = centre.to_vec();
        add_scaled(&mut minimiser, 1.0 / strength, &moved);
        Some(minimiser)
    }

    /// The covariance `(A + γI)⁻¹` around that minimiser, row-major; with strength 0, in the determined directions.
    pub(crate) fn covariance(&self, strength: f64) -> Option<Vec<f64>> {
        let size = self.dimension();
        if strength == 0.0 {
            return Some(Spectrum::new(&self.curvature, size)?.inverse());
        }
        let mut covariance = vec![0.0; size * size];
        covariance.iter_mut().step_by(size + 1).for_each(|x| *x = 1.0 / strength);
        if self.hides(strength) {
            let spectrum = Spectrum::new(&self.curvature, size)?;
            if spectrum.rank() == size {
                covariance.fill(0.0);
            } else {
                add_scaled(&mut covariance, -1.0 / strength, &spectrum.map(|_| 1.0));
            }
            add_scaled(&mut covariance, 1.0, &spectrum.map(|value| 1.0 / (value + strength)));
        } else if strength < f64::INFINITY {
            solve_factored(&self.factor(strength)?.0, &mut covariance, size, size);
            make_symmetric(&mut covariance, size);
        }
        Some(covariance)
    }

    pub(crate) fn value(&self, parameters: &[f64]) -> f64 {
        let rows = self.curvature.chunks_exact(self.dimension());
        let bent: f64 = rows.zip(parameters).map(|(row, x)| x * dot(row, parameters)).sum();
        0.5 * bent - dot(&self.moment, parameters) + self.energy
    }

    /// Whether the strength is so small that only the eigenvalues tell it from rounding.
    fn hides(&self, strength: f64) -> bool {
        let diagonal = self.curvature.iter().step_by(self.dimension() + 1);
        strength < FAINT * diagonal.fold(0.0, |largest, &value| value.max(largest))
    }

    /// The Cholesky factor of `I + A/γ`, and the logarithm of its determinant.
    ///
    /// What a pivot has beyond 1 is never negative but for rounding, and is kept apart from the 1, so that small `A` keep
    /// their digits.
    fn factor(&self, strength: f64) -> Option<(Vec<f64>, f64)> {
        let size = self.dimension();
        let mut factor = vec![0.0; size * size];
        let mut log_determinant = 0.0;
        for i in 0..size {
            let (above, row) = factor.split_at_mut(i * size);
            let given = &self.curvature[i * size..];
            for j in 0..i {
                let other = &above[j * size..];
                row[j] = (given[j] / strength - dot(&row[..j], &other[..j])) / other[j];
            }
            let whole = given[i] / strength;
            let beyond = whole - dot(&row[..i], &row[..i]);
            if !(beyond >= -ROUNDING * whole && beyond < f64::INFINITY) {
                return None;
            }
            let beyond = beyond.max(0.0);
            row[i] = (1.0 + beyond).sqrt();
            log_determinant += beyond.ln_1p();
        }
        Some((factor, log_determinant))
    }
}

impl Response {
    pub(crate) fn zero(dimension: usize) -> Self {
        Self { curvature: vec![0.0; dimension * dimension], moment: vec![0.0; dimension], energy: 0.0, volume: 0.0 }
    }

    pub(crate) fn dimension(&self) -> usize {
        self.moment.len()
    }

    /// As a quadratic loss in the centre. The volume does not depend on the centre, and is left behind.
    pub(crate) fn into_quadratic(self) -> Quadratic {
        Quadratic { curvature: self.curvature, moment: self.moment, energy: self.energy }
    }

    /// Number of values that [`Response::pack`] appends.
    pub(crate) fn packed_len(dimension: usize) -> usize {
        dimension * (dimension + 1) / 2 + dimension + 2
    }

    /// Appends its values, the curvature's upper triangle only. Sums of packed responses are packed sums.
    pub(crate) fn pack(&self, out: &mut Vec<f64>) {
        let rows = self.curvature.chunks_exact(self.dimension()).enumerate();
        rows.for_each(|(i, row)| out.extend_from_slice(&row[i..]));
        out.extend_from_slice(&self.moment);
        out.extend([self.energy, self.volume]);
    }

    pub(crate) fn unpack(packed: &[f64], dimension: usize) -> Self {
        debug_assert_eq!(packed.len(), Self::packed_len(dimension));
        let mut response = Self::zero(dimension);
        let (mut triangle, rest) = packed.split_at(dimension * (dimension + 1) / 2);
        for i in 0..dimension {
            let (row, others) = triangle.split_at(dimension - i);
            for (j, &value) in (i..).zip(row) {
                response.curvature[i * dimension + j] = value;
                response.curvature[j * dimension + i] = value;
            }
            triangle = others;
        }
        response.moment.copy_from_slice(&rest[..dimension]);
        (response.energy, response.volume) = (rest[dimension], rest[dimension + 1]);
        response
    }
}

pub(super) fn trace(matrix: &[f64], size: usize) -> f64 {
    (0..size).map(|i| matrix[i * (size + 1)]).sum()
}

fn make_symmetric(matrix: &mut [f64], size: usize) {
    for i in 0..size {
        for j in 0..i {
            let mean = 0.5 * (matrix[i * size + j] + matrix[j * size + i]);
            (matrix[i * size + j], matrix[j * size + i]) = (mean, mean);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::{distance, multiply_add};
    use crate::rng::Key;
    use rand::RngExt;
    use rand_distr::StandardNormal;

    /// The loss of random rows.
    fn draw(rows: usize, size: usize, seed: u64) -> Quadratic {
        let mut random = Key::new(seed).rng();
        let mut draw = |count| (0..count).map(|_| random.sample(StandardNormal)).collect::<Vec<f64>>();
        let (x, y) = (draw(rows * size), draw(rows));
        let (mut curvature, mut moment) = (vec![0.0; size * size], vec![0.0; size]);
        let matrix = Matrix::new(&x, rows, size);
        multiply_add(&mut curvature, 1.0, matrix.transpose(), matrix);
        multiply_add(&mut moment, 1.0, matrix.transpose(), Matrix::new(&y, rows, 1));
        Quadratic { curvature, moment, energy: 0.5 * dot(&y, &y) }
    }

    fn close(found: f64, wanted: f64, tolerance: f64) {
        assert!((found - wanted).abs() <= tolerance * wanted.abs(), "{found} {wanted}");
    }

    #[test]
    fn one_parameter_by_hand() {
        // A = 3, b = 2, e = 5, γ = 1: P = ¼.
        let quadratic = Quadratic { curvature: vec![3.0], moment: vec![2.0], energy: 5.0 };
        let (response, slope) = quadratic.respond_with_slope(1.0).unwrap();
        assert_eq!((response.curvature[0], response.moment[0], response.energy), (0.75, 0.5, 4.5));
        close(response.volume, 0.5 * 4f64.ln(), 1e-15);
        assert_eq!((slope.curvature[0], slope.moment[0]), (0.5625, 0.375));
        assert_eq!((slope.energy, slope.volume), (0.125, -0.375));
        assert_eq!(quadratic.minimiser(1.0, &[2.0]).unwrap(), [1.0]);
        assert_eq!((quadratic.value(&[1.0]), quadratic.covariance(1.0).unwrap()[0]), (4.5, 0.25));
    }

    #[test]
    fn diagonals_keep_their_digits_from_tiny_to_huge() {
        for exponent in -12..=12 {
            let (a, strength) = (10f64.powi(exponent) * 0.7, 0.7 * 1.3);
            // Beside a direction of which nothing is known, and one of which much is.
            let curvature = vec![a, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1e3 * a];
            let quadratic = Quadratic { curvature, moment: vec![a, 0.0, 2.0], energy: 1.0 };
            let (response, slope) = quadratic.respond_with_slope(strength).unwrap();
            for (i, value) in [(0, a), (1, 0.0), (2, 1e3 * a)] {
                let kept = value / (value + strength);
                close(response.curvature[4 * i], strength * kept, 4e-15);
                close(slope.curvature[4 * i], kept * kept, 4e-15);
            }
            close(response.volume, 0.5 * ((a / strength).ln_1p() + (1e3 * a / strength).ln_1p()), 4e-15);
            let trace = a / (a + strength) + 1e3 * a / (1e3 * a + strength);
            close(slope.volume, -0.5 * trace / strength, 4e-15);
            close(response.moment[0], a * strength / (a + strength), 4e-15);
            close(slope.moment[0], a * a / (a + strength).powi(2), 4e-15);
        }
    }

    #[test]
    fn dense_matrices_keep_them_too() {
        let size = 5;
        for exponent in -12..=12 {
            // v vᵀ of one row v: S = γ vvᵀ/(γ + vᵀv), and everything else follows.
            let scale = 10f64.powi(exponent);
            let v: Vec<f64> = (0..size).map(|i| (scale / (i + 1) as f64).sqrt()).collect();
            let curvature = v.iter().flat_map(|x| v.iter().map(move |y| x * y)).collect();
            let quadratic = Quadratic { curvature, moment: v.clone(), energy: 0.5 };
            let (response, slope) = quadratic.respond_with_slope(1.0).unwrap();
            let length = dot(&v, &v);
            let share = 1.0 / (1.0 + length);
            let tolerance = 1e-14 * (1.0 + scale);
            for (i, (s, ds)) in response.curvature.iter().zip(&slope.curvature).enumerate() {
                let wanted = v[i / size] * v[i % size] * share;
                close(*s, wanted, tolerance);
                close(*ds, wanted * length * share, tolerance);
            }
            assert!(response.curvature.iter().chain(&slope.curvature).all(|x| x.is_finite()));
            close(response.volume, 0.5 * length.ln_1p(), tolerance.min(1e-6));
        }
    }

    #[test]
    fn integrals_agree_with_the_minimum_and_slopes_with_differences() {
        for (rows, size) in [(12, 4), (2, 4), (30, 20)] {
            let quadratic = draw(rows, size, 1);
            let centre: Vec<f64> = (0..size).map(|i| 0.3 - 0.1 * i as f64).collect();
            let strength = 0.8;
            let (response, slope) = quadratic.respond_with_slope(strength).unwrap();
            assert_eq!(response, quadratic.respond(strength).unwrap());
            let best = quadratic.minimiser(strength, &centre).unwrap();
            let least = quadratic.value(&best) + 0.5 * strength * distance(&best, &centre).powi(2);
            close(response.clone().into_quadratic().value(&centre), least, 1e-12);
            let h = 1e-4;
            let near = |strength| {
                let mut packed = Vec::new();
                quadratic.respond(strength).unwrap().pack(&mut packed);
                packed
            };
            let mut packed = Vec::new();
            slope.pack(&mut packed);
            for ((up, down), wanted) in near(strength + h).iter().zip(near(strength - h)).zip(&packed) {
                assert!(((up - down) / (2.0 * h) - wanted).abs() < 1e-6 * (1.0 + wanted.abs()));
            }
        }
    }

    #[test]
    fn strengths_at_both_ends() {
        let quadratic = draw(2, 4, 3);
        let (pooled, flat) = quadratic.respond_with_slope(f64::INFINITY).unwrap();
        assert_eq!((pooled.volume, flat), (0.0, Response::zero(4)));
        assert_eq!(pooled.into_quadratic(), quadratic);
        assert_eq!(quadratic.minimiser(f64::INFINITY, &[1.0; 4]).unwrap(), [1.0; 4]);
        // Two rows in four dimensions are met exactly, by the smallest that meets them.
        let alone = quadratic.minimiser(0.0, &[]).unwrap();
        assert!(quadratic.value(&alone).abs() < 1e-13);
        let nearly = quadratic.minimiser(1e-7, &[0.0; 4]).unwrap();
        assert!(distance(&alone, &nearly) < 1e-6 && distance(&alone, &nearly) > 0.0);
        let silent = quadratic.respond(0.0).unwrap();
        assert!(silent.energy.abs() < 1e-13 && silent.curvature.iter().all(|x| *x == 0.0));
        // The faintest pull on singular clients is none that breaks.
        let (faint, slope) = quadratic.respond_with_slope(1e-30).unwrap();
        close(trace(&faint.curvature, 4), 2e-30, 1e-12);
        close(slope.volume, -1e30, 1e-12);
        assert!(distance(&alone, &quadratic.minimiser(1e-30, &[0.0; 4]).unwrap()) < 1e-13);
    }

    #[test]
    fn what_is_no_loss_is_refused() {
        for curvature in [vec![1.0, 2.0, 2.0, 1.0], vec![-1.0, 0.0, 0.0, 1.0], vec![f64::NAN, 0.0, 0.0, 1.0]] {
            let quadratic = Quadratic { curvature, moment: vec![0.0; 2], energy: 0.0 };
            assert!(quadratic.respond(0.1).is_none());
        }
        let good = draw(3, 2, 1);
        assert!(good.respond_with_slope(0.0).is_none() && good.respond(-1.0).is_none());
    }

    #[test]
    fn packed_sums_are_sums() {
        let (one, other) = (draw(5, 3, 1).respond(2.0).unwrap(), draw(2, 3, 2).respond(2.0).unwrap());
        let (mut packed, mut second) = (Vec::new(), Vec::new());
        one.pack(&mut packed);
        other.pack(&mut second);
        assert_eq!((packed.len(), Response::unpack(&packed, 3)), (Response::packed_len(3), one.clone()));
        add_scaled(&mut packed, 1.0, &second);
        let sum = Response::unpack(&packed, 3);
        assert_eq!(sum.curvature[5], one.curvature[5] + other.curvature[5]);
        assert_eq!(sum.curvature[7], one.curvature[7] + other.curvature[7]);
        assert_eq!((sum.energy, sum.moment[2]), (one.energy + other.energy, one.moment[2] + other.moment[2]));
    }
}
