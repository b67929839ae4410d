//! Whether clients differ: sums over their folds that have mean 0 where they do not.
//!
//! The statistic is the sum over clients of the squared length of their sums. Where clients are alike, folds of one client have no more in
//! common than those of two: random signs of folds leave the distribution as it is.

use crate::num::{add_scaled, sum_of_squares};
use crate::rng::Key;
use rand::RngExt;
use rayon::prelude::*;

/// Draws of signs.
const DRAWS: usize = 199;

/// What one client's folds sum up to, in units in which the sum over folds has variance 1 in every coordinate.
pub(crate) struct Blocks {
    pub(crate) folds: Vec<Vec<f64>>,
    /// The client's share in what all clients' sums are 0 in, of every coordinate: the roots of shares of rows.
    pub(crate) shares: Vec<f64>,
}

/// The statistic, with what all clients have in common taken out.
fn statistic(clients: &[Blocks], width: usize, sign: &mut dyn FnMut() -> f64) -> f64 {
    let mut common = vec![0.0; width];
    let sums: Vec<Vec<f64>> = clients
        .iter()
        .map(|client| {
            let mut sum = vec![0.0; width];
            client.folds.iter().for_each(|fold| add_scaled(&mut sum, sign(), fold));
            common.iter_mut().zip(&sum).zip(&client.shares).for_each(|((all, own), share)| *all += share * own);
            sum
        })
        .collect();
    let apart = |(sum, client): (&Vec<f64>, &Blocks)| {
        let parts = sum.iter().zip(&common).zip(&client.shares);
        sum_of_squares(&parts.map(|((own, all), share)| own - share * all).collect::<Vec<f64>>())
    };
    sums.iter().zip(clients).map(apart).sum()
}

/// The p-value of "all clients are alike"; `None` for a single client.
pub(crate) fn difference(clients: &[Blocks], key: &Key) -> Option<f64> {
    let width = clients.first().map_or(0, |client| client.shares.len());
    if clients.len() < 2 || width == 0 {
        return None;
    }
    let found = statistic(clients, width, &mut || 1.0);
    let beyond = |draw: usize| {
        let mut random = key.clone().number(draw as u64).rng();
        statistic(clients, width, &mut || if random.random::<bool>() { 1.0 } else { -1.0 }) >= found
    };
    let beyond = (0..DRAWS).into_par_iter().filter(|draw| beyond(*draw)).count();
    Some((1 + beyond) as f64 / (DRAWS + 1) as f64)
}
