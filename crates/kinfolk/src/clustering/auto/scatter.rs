//! Covariances of clouds.

use crate::num::triangular::{factorise, invert, log_determinant};
use crate::num::{add_scaled, dot};

/// What the clouds of a mixture have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Spheres of one size.
    Round,
    /// Spheres, each of its own size.
    Rounds,
    /// One covariance for all.
    Tied,
    /// Each stretched along a direction of its own, all by the same lengths.
    Stretched,
    /// A covariance for each.
    Full,
}

/// Up to this many points two are enough for a cluster; among more, a pair is a coincidence.
const FEW_POINTS: usize = 20;

impl Form {
    pub const ALL: [Self; 5] = [Self::Round, Self::Rounds, Self::Tied, Self::Stretched, Self::Full];

    /// Number of free parameters of the scatter: per cloud, and common to all.
    pub fn parameters(self, dimension: usize) -> (usize, usize) {
        let triangle = dimension * (dimension + 1) / 2;
        match self {
            Self::Round => (0, 1),
            Self::Rounds => (1, 0),
            Self::Tied => (0, triangle),
            Self::Stretched => (dimension - 1, 2),
            Self::Full => (triangle, 0),
        }
    }

    /// In one dimension there are only spheres.
    pub fn applies(self, dimension: usize) -> bool {
        dimension > 1 || matches!(self, Self::Round | Self::Rounds)
    }

    pub fn least_members(self, count: usize) -> f64 {
        if self == Self::Round && count <= FEW_POINTS { 1.5 } else { 2.5 }
    }

    pub fn least_points(self, clouds: usize, dimension: usize) -> f64 {
        (match self {
            Self::Round | Self::Rounds => clouds,
            Self::Tied | Self::Full => clouds + 2 * dimension,
            // A line lies through any two points.
            Self::Stretched => 4 * clouds,
        }) as f64
    }

    /// Whether a form needs the full second moments, not only their trace.
    fn is_directed(self) -> bool {
        !matches!(self, Self::Round | Self::Rounds)
    }

    pub fn describe(self) -> &'static str {
        match self {
            Self::Round => "round clusters of one size",
            Self::Rounds => "round clusters of different sizes",
            Self::Tied => "clusters of one shape",
            Self::Stretched => "stretched clusters",
            Self::Full => "clusters of different shapes",
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Scatter {
    Sphere(f64),
    /// One variance along an axis, another across it.
    Spike {
        along: f64,
        across: f64,
        axis: Vec<f64>,
    },
    /// Any covariance, with its whitening lower triangle, both row-major.
    Matrix {
        covariance: Vec<f64>,
        whitener: Vec<f64>,
        log_determinant: f64,
    },
}

impl Scatter {
    pub fn matrix(covariance: Vec<f64>, size: usize) -> Self {
        let mut factor = Vec::new();
        factorise(&covariance, size, &mut factor);
        let mut whitener = vec![0.0; size * size];
        invert(&factor, size, &mut whitener);
        Self::Matrix { covariance, whitener, log_determinant: log_determinant(&factor, size) }
    }

    pub fn log_determinant(&self, dimension: usize) -> f64 {
        match self {
            Self::Sphere(variance) => dimension as f64 * variance.ln(),
            Self::Spike { along, across, .. } => along.ln() + (dimension - 1) as f64 * across.ln(),
            Self::Matrix { log_determinant, .. } => *log_determinant,
        }
    }

    /// The squared Mahalanobis length of a difference.
    pub fn square(&self, difference: &[f64]) -> f64 {
        match self {
            Self::Sphere(variance) => dot(difference, difference) / variance,
            Self::Spike { along, across, axis } => {
                let on_axis = dot(difference, axis).powi(2);
                on_axis / along + (dot(difference, difference) - on_axis).max(0.0) / across
            }
            Self::Matrix { whitener, .. } => {
                let rows = whitener.chunks_exact(difference.len()).enumerate();
                rows.map(|(at, row)| dot(&row[..=at], &difference[..=at]).powi(2)).sum()
            }
        }
    }

    /// The mean of [`Scatter::square`] over differences with these moments.
    pub fn mean_square(&self, moments: &Moments) -> f64 {
        let dimension = moments.centre.len();
        match self {
            Self::Sphere(variance) => moments.trace() / variance,
            Self::Spike { along, across, axis } => {
                let on_axis = quadratic(&moments.second, axis);
                on_axis / along + (moments.trace() - on_axis).max(0.0) / across
            }
            Self::Matrix { whitener, .. } => {
                whitener.chunks_exact(dimension).map(|row| quadratic(&moments.second, row)).sum()
            }
        }
    }

    pub fn covariance(&self, dimension: usize) -> Vec<f64> {
        let mut matrix = vec![0.0; dimension * dimension];
        match self {
            Self::Sphere(variance) => matrix.iter_mut().step_by(dimension + 1).for_each(|value| *value = *variance),
            Self::Spike { along, across, axis } => {
                for (row, value) in matrix.chunks_exact_mut(dimension).zip(axis) {
                    add_scaled(row, (along - across) * value, axis);
                }
                matrix.iter_mut().step_by(dimension + 1).for_each(|value| *value += across);
            }
            Self::Matrix { covariance, .. } => matrix.copy_from_slice(covariance),
        }
        matrix
    }

    pub fn axis(&self) -> Option<&[f64]> {
        match self {
            Self::Spike { axis, .. } => Some(axis),
            _ => None,
        }
    }
}

fn quadratic(matrix: &[f64], vector: &[f64]) -> f64 {
    matrix.chunks_exact(vector.len()).zip(vector).map(|(row, value)| value * dot(row, vector)).sum()
}

#[derive(Debug, Clone)]
pub(super) struct Moments {
    pub members: f64,
    pub centre: Vec<f64>,
    /// The mean outer product of differences, row-major; only their mean squared length for a round form.
    second: Vec<f64>,
}

impl Moments {
    pub fn around(centre: Vec<f64>, members: f64, form: Form) -> Self {
        let length = if form.is_directed() { centre.len() * centre.len() } else { 1 };
        Self { members, centre, second: vec![0.0; length] }
    }

    /// Adds a difference from the centre to the lower triangle.
    pub fn add(&mut self, difference: &[f64], weight: f64) {
        if let [square] = &mut self.second[..] {
            *square += weight * dot(difference, difference);
            return;
        }
        for (at, row) in self.second.chunks_exact_mut(difference.len()).enumerate() {
            add_scaled(&mut row[..=at], weight * difference[at], &difference[..=at]);
        }
    }

    pub fn finish(&mut self) {
        let size = self.centre.len();
        if self.second.len() > 1 {
            (0..size)
                .for_each(|row| (0..row).for_each(|at| self.second[at * size + row] = self.second[row * size + at]));
        }
    }

    pub fn joined(&self, other: &Self) -> Self {
        let members = self.members + other.members;
        let (share, rest) = (self.members / members, other.members / members);
        let blend = |one: &[f64], two: &[f64]| one.iter().zip(two).map(|(a, b)| share * a + rest * b).collect();
        let mut joined =
            Self { members, centre: blend(&self.centre, &other.centre), second: blend(&self.second, &other.second) };
        let apart: Vec<f64> = self.centre.iter().zip(&other.centre).map(|(a, b)| a - b).collect();
        joined.add(&apart, share * rest);
        joined.finish();
        joined
    }

    fn trace(&self) -> f64 {
        if self.second.len() == 1 { self.second[0] } else { self.second.iter().step_by(self.centre.len() + 1).sum() }
    }
}

/// The second moments of one cloud that a form uses: a variance, one along an axis and one across it, or all of them.
enum Extent {
    Sphere(f64),
    Spike { along: f64, across: f64, axis: Vec<f64> },
    Matrix(Vec<f64>),
}

impl Extent {
    fn of(form: Form, moments: &Moments, axis: Option<&[f64]>) -> Self {
        let dimension = moments.centre.len();
        match form {
            Form::Round | Form::Rounds => Self::Sphere(moments.trace() / dimension as f64),
            Form::Tied | Form::Full => Self::Matrix(moments.second.clone()),
            Form::Stretched => {
                let (along, axis) = longest_axis(&moments.second, dimension, axis);
                Self::Spike { along, across: (moments.trace() - along).max(0.0) / (dimension - 1) as f64, axis }
            }
        }
    }
}

/// Prior weight, in points, of the common scatter where each cloud has its own: without it few points may be degenerate.
const LENT: f64 = 2.0;

pub(super) struct Common {
    form: Form,
    floor: f64,
    dimension: usize,
    shared: Shared,
}

enum Shared {
    /// The same for all.
    Scatter(Scatter),
    /// A prior for the scatter of each.
    Sphere(f64),
    Matrix(Vec<f64>),
    /// Each has an axis of its own.
    Lengths {
        along: f64,
        across: f64,
    },
}

impl Common {
    pub fn of(form: Form, moments: &[Moments], floor: f64) -> Self {
        let extents: Vec<Extent> = moments.iter().map(|moments| Extent::of(form, moments, None)).collect();
        Self::from(form, moments, &extents, floor)
    }

    fn from(form: Form, moments: &[Moments], extents: &[Extent], floor: f64) -> Self {
        let dimension = moments[0].centre.len();
        let all: f64 = moments.iter().map(|moments| moments.members).sum();
        let weighted = || moments.iter().map(|moments| moments.members / all).zip(extents);
        let mean = |of: fn(&Extent) -> f64| weighted().map(|(share, extent)| share * of(extent)).sum::<f64>();
        let pooled = || {
            let mut pooled = vec![0.0; dimension * dimension];
            for (share, extent) in weighted() {
                if let Extent::Matrix(matrix) = extent {
                    add_scaled(&mut pooled, share, matrix);
                }
            }
            pooled
        };
        let variance = |extent: &Extent| if let Extent::Sphere(variance) = extent { *variance } else { 0.0 };
        let shared = match form {
            Form::Round => Shared::Scatter(Scatter::Sphere(mean(variance).max(floor))),
            // In logarithms, so that large clouds do not dominate small ones.
            Form::Rounds => {
                let log = weighted().map(|(share, extent)| share * variance(extent).max(floor).ln());
                Shared::Sphere(log.sum::<f64>().exp())
            }
            Form::Tied => Shared::Scatter(Scatter::matrix(with_floor(pooled(), dimension, floor), dimension)),
            Form::Full => Shared::Matrix(pooled()),
            Form::Stretched => Shared::Lengths {
                along: mean(|extent| if let Extent::Spike { along, .. } = extent { *along } else { 0.0 }).max(floor),
                across: mean(|extent| if let Extent::Spike { across, .. } = extent { *across } else { 0.0 }).max(floor),
            },
        };
        Self { form, floor, dimension, shared }
    }

    pub fn scatter(&self, moments: &Moments) -> Scatter {
        self.give(moments.members, Extent::of(self.form, moments, None))
    }

    fn give(&self, members: f64, extent: Extent) -> Scatter {
        let lend = |own: f64, common: f64| (members * own + LENT * common) / (members + LENT);
        match (&self.shared, extent) {
            (Shared::Sphere(common), Extent::Sphere(own)) => Scatter::Sphere(lend(own, *common).max(self.floor)),
            (Shared::Matrix(common), Extent::Matrix(own)) => {
                let blended = own.iter().zip(common).map(|(own, common)| lend(*own, *common)).collect();
                Scatter::matrix(with_floor(blended, self.dimension, self.floor), self.dimension)
            }
            (Shared::Lengths { along, across }, Extent::Spike { axis, .. }) => {
                Scatter::Spike { along: *along, across: *across, axis }
            }
            (Shared::Scatter(scatter), _) => scatter.clone(),
            _ => unreachable!("a form has one kind of extent"),
        }
    }
}

fn with_floor(mut matrix: Vec<f64>, size: usize, floor: f64) -> Vec<f64> {
    matrix.iter_mut().step_by(size + 1).for_each(|value| *value += floor);
    matrix
}

/// The scatters of clouds with these moments; axes are updated from the previous ones.
pub(super) fn scatters(form: Form, moments: &[Moments], axes: &[Option<&[f64]>], floor: f64) -> Vec<Scatter> {
    let axis = |cloud: usize| axes.get(cloud).copied().flatten();
    let extents: Vec<Extent> =
        moments.iter().enumerate().map(|(cloud, moments)| Extent::of(form, moments, axis(cloud))).collect();
    let common = Common::from(form, moments, &extents, floor);
    moments.iter().zip(extents).map(|(moments, extent)| common.give(moments.members, extent)).collect()
}

/// Steps of the power method; later steps of EM continue it.
const POWERS: usize = 12;

/// The largest eigenvalue of a matrix, and its eigenvector.
fn longest_axis(matrix: &[f64], size: usize, start: Option<&[f64]>) -> (f64, Vec<f64>) {
    let diagonal = |row: usize| matrix[row * size + row];
    let largest = (1..size).fold(0, |best, row| if diagonal(row) > diagonal(best) { row } else { best });
    let mut axis = match start {
        Some(axis) => axis.to_vec(),
        None => (0..size).map(|row| f64::from(u8::from(row == largest))).collect(),
    };
    for _ in 0..POWERS {
        let turned: Vec<f64> = matrix.chunks_exact(size).map(|row| dot(row, &axis)).collect();
        let length = dot(&turned, &turned).sqrt();
        if length == 0.0 {
            break;
        }
        axis = turned.into_iter().map(|value| value / length).collect();
    }
    (quadratic(matrix, &axis), axis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(points: &[[f64; 2]], form: Form) -> Moments {
        let count = points.len() as f64;
        let centre = vec![
            points.iter().map(|point| point[0]).sum::<f64>() / count,
            points.iter().map(|point| point[1]).sum::<f64>() / count,
        ];
        let mut moments = Moments::around(centre, count, form);
        for point in points {
            let difference = [point[0] - moments.centre[0], point[1] - moments.centre[1]];
            moments.add(&difference, 1.0 / count);
        }
        moments.finish();
        moments
    }

    #[test]
    fn joined_moments_are_those_of_all_points() {
        let (one, two) = ([[0.0, 1.0], [2.0, 0.0], [1.0, 5.0]], [[7.0, 1.0], [3.0, -2.0]]);
        for form in Form::ALL {
            let joined = moments(&one, form).joined(&moments(&two, form));
            let all = moments(&[one.as_slice(), &two].concat(), form);
            let difference = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(difference(&joined.second, &all.second) < 1e-14 && difference(&joined.centre, &all.centre) < 1e-14);
        }
    }

    #[test]
    fn scatters_say_the_same_as_their_covariances() {
        let cloud = moments(&[[0.0, 0.0], [4.0, 3.0], [8.0, 7.0], [1.0, -1.0]], Form::Full);
        for scatter in [
            Scatter::Sphere(2.0),
            Scatter::Spike { along: 5.0, across: 0.5, axis: vec![0.6, 0.8] },
            Scatter::matrix(vec![2.0, 1.0, 1.0, 3.0], 2),
        ] {
            let whole = Scatter::matrix(scatter.covariance(2), 2);
            let pair = [(&scatter, &whole)].map(|(a, b)| {
                let squares = a.square(&[1.0, -2.0]) - b.square(&[1.0, -2.0]);
                let means = a.mean_square(&cloud) - b.mean_square(&cloud);
                squares.abs() + means.abs() + (a.log_determinant(2) - b.log_determinant(2)).abs()
            });
            assert!(pair[0] < 1e-10, "{scatter:?}");
        }
    }

    #[test]
    fn the_longest_axis_by_hand() {
        let (length, axis) = longest_axis(&[5.0, 4.0, 4.0, 5.0], 2, None);
        assert!((length - 9.0).abs() < 1e-9 && (axis[0] - 0.5f64.sqrt()).abs() < 1e-6);
    }
}
