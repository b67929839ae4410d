//! The same mixture in another form, and in another order of its components.

use super::{Covariance, Family, Shape};

/// The parameters of one form as the nearest of another: what scatters alike for all components does so for each.
pub fn recast(from: &Shape, params: &[f64], to: &Shape) -> Vec<f64> {
    if from == to {
        return params.to_vec();
    }
    let mut recast = params[from.centres()].to_vec();
    recast.extend(scatter(from, &params[from.scatter()], &params[from.weights()], to));
    recast.extend_from_slice(&params[from.weights()]);
    recast
}

fn scatter(from: &Shape, scatter: &[f64], weights: &[f64], to: &Shape) -> Vec<f64> {
    let (count, columns) = (to.components, to.columns);
    let (Family::Gaussian(old), Family::Gaussian(new)) = (from.family, to.family) else {
        // Regressions: a variance, or 1.
        return scatter.iter().copied().chain(std::iter::repeat(1.0)).take(to.scatter().len()).collect();
    };
    // Every component's covariance, whatever was known of it.
    let of = |component: usize| -> Vec<f64> {
        let mut covariance = vec![0.0; columns * columns];
        match old {
            Covariance::Tied => covariance.copy_from_slice(scatter),
            Covariance::Full => {
                covariance.copy_from_slice(&scatter[component * columns * columns..][..columns * columns])
            }
            _ => (0..columns).for_each(|column| {
                covariance[column * (columns + 1)] = match old {
                    Covariance::Spherical => scatter[component],
                    Covariance::Diagonal => scatter[component * columns + column],
                    _ => 1.0,
                }
            }),
        }
        covariance
    };
    let diagonal = |covariance: &[f64]| -> Vec<f64> { covariance.iter().step_by(columns + 1).copied().collect() };
    match new {
        Covariance::Identity => Vec::new(),
        Covariance::Spherical => {
            (0..count).map(|component| diagonal(&of(component)).iter().sum::<f64>() / columns as f64).collect()
        }
        Covariance::Diagonal => (0..count).flat_map(|component| diagonal(&of(component))).collect(),
        Covariance::Full => (0..count).flat_map(of).collect(),
        Covariance::Tied => {
            let mut mean = vec![0.0; columns * columns];
            for (component, &weight) in weights.iter().enumerate() {
                crate::num::add_scaled(&mut mean, weight, &of(component));
            }
            mean
        }
    }
}

/// Puts components into another order: which of the old ones is the first, the second and so on.
pub fn relabel(shape: &Shape, params: &mut [f64], order: &[u32]) {
    let each = |range: std::ops::Range<usize>, params: &mut [f64]| {
        let width = range.len() / shape.components;
        let old = params[range.clone()].to_vec();
        for (new, &from) in params[range].chunks_exact_mut(width.max(1)).zip(order) {
            new.copy_from_slice(&old[from as usize * width..][..width]);
        }
    };
    each(shape.centres(), params);
    if matches!(shape.family, Family::Gaussian(Covariance::Spherical | Covariance::Diagonal | Covariance::Full)) {
        each(shape.scatter(), params);
    }
    each(shape.weights(), params);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(covariance: Covariance) -> Shape {
        Shape { family: Family::Gaussian(covariance), components: 2, columns: 2 }
    }

    const CENTRES: [f64; 4] = [1.0, 2.0, 3.0, 4.0];

    #[test]
    fn a_common_covariance_becomes_each_components() {
        let tied = [&CENTRES[..], &[2.0, 0.5, 0.5, 4.0], &[0.25, 0.75]].concat();
        let to = |covariance| recast(&shape(Covariance::Tied), &tied, &shape(covariance));
        assert_eq!(to(Covariance::Identity), [&CENTRES[..], &[0.25, 0.75]].concat());
        assert_eq!(to(Covariance::Spherical), [&CENTRES[..], &[3.0, 3.0, 0.25, 0.75]].concat());
        assert_eq!(to(Covariance::Diagonal), [&CENTRES[..], &[2.0, 4.0, 2.0, 4.0, 0.25, 0.75]].concat());
        assert_eq!(to(Covariance::Full)[4..12], [2.0, 0.5, 0.5, 4.0, 2.0, 0.5, 0.5, 4.0]);
        let back = recast(&shape(Covariance::Full), &to(Covariance::Full), &shape(Covariance::Tied));
        assert_eq!(back, tied);
    }

    #[test]
    fn components_change_places_with_all_that_is_theirs() {
        let mut params = [&CENTRES[..], &[5.0, 6.0], &[0.25, 0.75]].concat();
        relabel(&shape(Covariance::Spherical), &mut params, &[1, 0]);
        assert_eq!(params, [3.0, 4.0, 1.0, 2.0, 6.0, 5.0, 0.75, 0.25]);
        let mut params = [&CENTRES[..], &[5.0, 6.0, 7.0, 8.0], &[0.25, 0.75]].concat();
        relabel(&shape(Covariance::Tied), &mut params, &[1, 0]);
        assert_eq!(params[4..], [5.0, 6.0, 7.0, 8.0, 0.75, 0.25]);
    }
}
