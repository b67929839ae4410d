//! Whether clients differ and fall into families, from how each of them would change one model.
//!
//! ```text
//! 1  u_iᴬ, u_iᴮ ← the model's update on two disjoint parts of client i's rows, scaled alike and centred over clients
//! 2  C_ij = ⟨u_iᴬ, u_jᴮ⟩, the diagonal too, is free of the noise of rows on average
//! 3  different at all?  Σ C_ii beside its values where parts B are dealt out to clients at random
//! 4  directions: eigenvectors of (C + Cᵀ)/2 without its diagonal, with eigenvalues larger than those of noise, of which
//!    (C − Cᵀ)/2 has as much and nothing else
//! 5  families: clusters of the clients in these directions, where a single cloud would not look like several
//! ```
//!
//! Without the diagonal a client adds nothing to its own place. Differences by degrees, in many directions, make one cloud.

use crate::clustering::{self, Algorithm, Points, Request};
use crate::error::Result;
use crate::num::solve::{Spectrum, extreme_eigenvalues};
use crate::num::{Matrix, add_scaled, multiply, norm};
use crate::rng::Key;
use rand::RngExt;
use rand::seq::SliceRandom;

/// With fewer clients no families are looked for.
pub(super) const LEAST_CLIENTS: usize = 10;
/// Longer updates are folded into so many numbers.
const WIDTH: usize = 1 << 14;
/// Deals of the permutation test.
const DEALS: usize = 999;
/// Draws of noise; the largest of 39 is exceeded by one in 40.
const NOISES: usize = 39;
/// Directions looked at.
const MOST_DIRECTIONS: usize = 10;

/// An update in at most [`WIDTH`] numbers, with nearly the same inner products: coordinates are added up in random places with
/// random signs.
pub(super) fn folded(update: &[f64]) -> Vec<f64> {
    if update.len() <= WIDTH {
        return update.to_vec();
    }
    let mut sums = vec![0.0; WIDTH];
    for (place, value) in (0u64..).zip(update) {
        // SplitMix64.
        let mut hash = place.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
        sums[hash as usize % WIDTH] += sign * value;
    }
    sums
}

/// What was seen.
pub(super) struct Seen {
    /// How often updates of clients that do not differ would agree as much.
    pub(super) p: f64,
    /// The family of every client, where there are several.
    pub(super) families: Option<Vec<usize>>,
}

/// Looks at the updates of some clients on two parts of their rows; `wanted` is the number of families, where it is given.
pub(super) fn look(mut halves: [Vec<Vec<f64>>; 2], wanted: Option<usize>, key: &Key) -> Result<Seen> {
    let clients = halves[0].len();
    let nothing = |p| Seen { p, families: None };
    if clients < 3 {
        return Ok(nothing(1.0));
    }
    let [first, second] = &mut halves;
    for (a, b) in first.iter_mut().zip(second.iter_mut()) {
        // A client with large updates counts no more than others.
        let length = (norm(a) * norm(b)).sqrt();
        if length > 0.0 {
            a.iter_mut().chain(b.iter_mut()).for_each(|value| *value /= length);
        }
    }
    let [first, second] = halves.map(|mut half| {
        let mut mean = vec![0.0; half[0].len()];
        half.iter().for_each(|update| add_scaled(&mut mean, 1.0 / clients as f64, update));
        half.iter_mut().for_each(|update| add_scaled(update, -1.0, &mean));
        half.concat()
    });
    let width = first.len() / clients;
    let mut products = vec![0.0; clients * clients];
    let second = Matrix::new(&second, clients, width).transpose();
    multiply(&mut products, 1.0, Matrix::new(&first, clients, width), second);
    let at = |i: usize, j: usize| products[i * clients + j];

    let p = permutation_test(clients, at, &key.clone().word("deals"));
    if clients < LEAST_CLIENTS && wanted.is_none() {
        return Ok(nothing(p));
    }
    let hollow = |of: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
        let entry = |(i, j): (usize, usize)| if i == j { 0.0 } else { of(i.max(j), i.min(j)) };
        (0..clients * clients).map(|place| entry((place / clients, place % clients))).collect()
    };
    let noise = |draw: u64| {
        let mut rng = key.clone().word("noise").number(draw).rng();
        let signs: Vec<bool> = (0..clients * clients).map(|_| rng.random()).collect();
        let signed = |i: usize, j: usize| {
            let half = 0.5 * (at(i, j) - at(j, i));
            if signs[i * clients + j] { half } else { -half }
        };
        extreme_eigenvalues(&hollow(&signed), clients).1
    };
    let noise = (0..NOISES as u64).map(noise).fold(0.0, f64::max);
    let Some(spectrum) = Spectrum::new(&hollow(&|i, j| 0.5 * (at(i, j) + at(j, i))), clients) else {
        return Ok(nothing(p));
    };
    let least = wanted.map_or(0, |wanted| wanted.saturating_sub(1).min(MOST_DIRECTIONS));
    let stands_out = |(place, (value, _)): &(usize, (f64, &[f64]))| *place < least || *value > noise;
    let directions: Vec<(f64, &[f64])> =
        spectrum.descending().enumerate().take_while(stands_out).map(|(_, pair)| pair).take(MOST_DIRECTIONS).collect();
    if directions.is_empty() {
        return Ok(nothing(p));
    }
    let place = |client: usize| directions.iter().map(move |(value, direction)| value.sqrt() * direction[client]);
    let places: Vec<f64> = (0..clients).flat_map(place).collect();
    let algorithm = if wanted.is_some() { Algorithm::KMeans } else { Algorithm::Auto };
    let request = Request::new(algorithm, wanted, key.clone().word("clusters"));
    let found = clustering::find(Points::new(&places, directions.len())?, &request, &mut |_| Ok(()))?;
    // How many more than one is left to the judgement on held-out rows.
    let families = (found.clustering.clusters() > 1).then_some(found.clustering.labels);
    Ok(Seen { p, families })
}

/// The share of random deals of parts B to clients, and of none, in which updates agree as much with their own part A.
fn permutation_test(clients: usize, at: impl Fn(usize, usize) -> f64, key: &Key) -> f64 {
    let agreement = |order: &[usize]| -> f64 { order.iter().enumerate().map(|(i, &j)| at(i, j)).sum() };
    let mut order: Vec<usize> = (0..clients).collect();
    let own = agreement(&order);
    let mut rng = key.rng();
    let deal = |_: usize| {
        order.shuffle(&mut rng);
        usize::from(agreement(&order) >= own)
    };
    let as_large: usize = (0..DEALS).map(deal).sum();
    (1 + as_large) as f64 / (1 + DEALS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clustering::quality::adjusted_rand_index;
    use crate::num::dot;
    use rand_distr::{Distribution, StandardNormal};

    fn normal(key: &Key, scale: f64, width: usize) -> Vec<f64> {
        let mut rng = key.rng();
        (0..width).map(|_| -> f64 { scale * Distribution::<f64>::sample(&StandardNormal, &mut rng) }).collect()
    }

    /// Updates of clients around the centres of families, with differences of their own and noise of rows.
    fn updates(clients: usize, families: usize, [between, own, noise]: [f64; 3], seed: u64) -> [Vec<Vec<f64>>; 2] {
        let key = Key::new(seed);
        let width = 300;
        [0, 1].map(|half| {
            let update = |client: usize| {
                let mut update = normal(&key.clone().word("common"), 1.0, width);
                let family = key.clone().word("family").number((client % families) as u64);
                add_scaled(&mut update, 1.0, &normal(&family, between, width));
                add_scaled(&mut update, 1.0, &normal(&key.clone().word("own").number(client as u64), own, width));
                let rows = key.clone().word("rows").number(half).number(client as u64);
                add_scaled(&mut update, 1.0, &normal(&rows, noise, width));
                update
            };
            (0..clients).map(update).collect()
        })
    }

    #[test]
    fn families_are_found_in_noise() {
        for (seed, (clients, families)) in (0..).zip([(20, 2), (20, 4), (40, 4), (100, 3)]) {
            let seen = look(updates(clients, families, [1.0, 0.3, 1.5], seed), None, &Key::new(seed)).unwrap();
            let truth: Vec<usize> = (0..clients).map(|client| client % families).collect();
            let found = seen.families.expect("families");
            assert!(adjusted_rand_index(&found, &truth) > 0.95, "{clients} {families}: {found:?}");
            assert_eq!(seen.p, 0.001);
        }
    }

    #[test]
    fn neither_noise_nor_differences_by_degrees_are_families() {
        let mut seen_to_differ = 0;
        for seed in 0..20 {
            let alike = look(updates(30, 1, [0.0, 0.0, 1.0], seed), None, &Key::new(seed)).unwrap();
            assert_eq!(alike.families, None, "seed {seed}");
            seen_to_differ += usize::from(alike.p <= 0.05);
            let degrees = look(updates(30, 1, [0.0, 1.0, 1.0], seed), None, &Key::new(seed)).unwrap();
            assert_eq!((degrees.families, degrees.p), (None, 0.001), "seed {seed}");
        }
        assert!(seen_to_differ <= 3, "{seen_to_differ} of 20");
    }

    #[test]
    fn as_many_families_as_wanted() {
        let seen = look(updates(12, 3, [2.0, 0.1, 1.0], 0), Some(3), &Key::new(0)).unwrap();
        let truth: Vec<usize> = (0..12).map(|client| client % 3).collect();
        assert_eq!(adjusted_rand_index(&seen.families.unwrap(), &truth), 1.0);
    }

    #[test]
    fn folding_keeps_inner_products() {
        let [a, b] = [1, 2].map(|seed| normal(&Key::new(seed), 1.0, 3 * WIDTH));
        let mut sum = a.clone();
        add_scaled(&mut sum, 1.0, &b);
        let (whole, short) = (dot(&a, &sum), dot(&folded(&a), &folded(&sum)));
        assert!((short / whole - 1.0).abs() < 0.05, "{short} {whole}");
        assert_eq!(folded(&a[..9]), &a[..9]);
    }
}
