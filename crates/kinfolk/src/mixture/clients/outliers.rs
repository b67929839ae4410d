//! Clients whose rows the components of the others do not explain.
//!
//! How likely rows are under a mixture has a known distribution where they come from it. That of all clients is compared with it, and a
//! client with the others: where all are explained badly, none is an outlier. Few clients whose rows are in the same unusual place make a
//! component there: it explains them, but is not one of the others'.

use crate::mixture::{Densities, Rows, Scratch, Shape, draw};
use crate::num::median;
use crate::num::tails::normal_tail;
use crate::rng::Key;

/// Rows drawn from every component, by which the log-likelihood of clients with any weights is known.
pub(crate) struct Typical {
    by_component: Vec<Densities>,
}

impl Typical {
    pub(crate) fn new(shape: &Shape, params: &[f64], key: &Key) -> Self {
        const DRAWN: usize = 2000;
        let mut scratch = Scratch::default();
        let component = |component: usize| {
            let values = draw(shape, params, component, DRAWN, &mut key.clone().number(component as u64).rng());
            Densities::of(shape, params, &Rows::new(shape, &values, &[]), &mut scratch)
        };
        Self { by_component: (0..shape.components).map(component).collect() }
    }

    /// How many deviations the log-likelihood of so many rows is above what these weights let expect; as a standard normal number.
    pub(crate) fn deviation(&self, weights: &[f64], rows: f64, log_likelihood: f64) -> f64 {
        let mut moments = [0.0; 4];
        for (densities, weight) in self.by_component.iter().zip(weights).filter(|(_, weight)| **weight > 0.0) {
            for row in 0..densities.len() {
                let value = densities.log_density(row, weights);
                let share = weight / densities.len() as f64;
                [1.0, value, value.powi(2), value.powi(3)]
                    .iter()
                    .zip(&mut moments)
                    .for_each(|(power, sum)| *sum += share * power);
            }
        }
        let [all, mean, square, cube] = moments;
        let (mean, square, cube) = (mean / all, square / all, cube / all);
        let variance = (square - mean * mean).max(1e-12);
        let skewness = (cube - 3.0 * mean * square + 2.0 * mean.powi(3)) / variance.powf(1.5) / rows.sqrt();
        let z = (log_likelihood / rows - mean) / (variance / rows).sqrt();
        normalised(z, skewness)
    }
}

/// The normal number at the quantile of a standardised number from a gamma distribution with this skewness (Wilson and Hilferty).
fn normalised(z: f64, skewness: f64) -> f64 {
    if skewness.abs() < 1e-3 {
        return z;
    }
    let sign = skewness.signum();
    let (g, z) = (skewness.abs(), z * sign);
    let freedom = 8.0 / (g * g);
    let share = 9.0 * freedom / 2.0;
    // χ² with this freedom has this skewness.
    let chi = (freedom + z * (2.0 * freedom).sqrt()).max(0.0);
    sign * ((chi / freedom).cbrt() - (1.0 - 1.0 / share)) * share.sqrt()
}

/// The p-value of every client: deviations below what is usual among all of them.
pub(crate) fn outlying(deviations: &[f64]) -> Vec<f64> {
    /// Clients from which on their own spread is told from that of the model.
    const FEWEST: usize = 5;
    const NORMAL: f64 = 1.482_602_218_505_602;
    let middle = median(deviations.iter().copied()).unwrap_or(0.0);
    let spread = NORMAL * median(deviations.iter().map(|deviation| (deviation - middle).abs())).unwrap_or(0.0);
    let (middle, spread) = if deviations.len() < FEWEST { (0.0, 1.0) } else { (middle, spread.max(1.0)) };
    deviations.iter().map(|deviation| normal_tail((middle - deviation) / spread)).collect()
}

/// Of every client, the components of a place that it shares with few others alone. `members` are the rows that each client has in each
/// component. A component is of such a place where at most a tenth of the clients have nearly all of it, by their shares of rows; a
/// client is of that place where nearly all its rows are in such components.
pub(crate) fn shared_places(members: &[Vec<f64>]) -> Vec<Vec<usize>> {
    const NEARLY_ALL_OF_A_COMPONENT: f64 = 0.95;
    const NEARLY_ALL_ROWS: f64 = 0.9;
    let few = members.len() / 10;
    let share = |own: &Vec<f64>, component: usize| {
        let rows: f64 = own.iter().sum();
        if rows > 0.0 { own[component] / rows } else { 0.0 }
    };
    let mut places = vec![Vec::new(); members.len()];
    for component in 0..members.first().map_or(0, Vec::len) {
        let shares: Vec<f64> = members.iter().map(|own| share(own, component)).collect();
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]));
        let most: f64 = order[..few].iter().map(|&client| shares[client]).sum();
        if most >= NEARLY_ALL_OF_A_COMPONENT * shares.iter().sum::<f64>() {
            order[..few].iter().for_each(|&client| places[client].push(component));
        }
    }
    for (own, place) in members.iter().zip(&mut places) {
        if place.iter().map(|&component| share(own, component)).sum::<f64>() < NEARLY_ALL_ROWS {
            place.clear();
        }
    }
    places
}
