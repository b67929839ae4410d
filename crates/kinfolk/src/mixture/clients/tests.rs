use super::*;
use crate::mixture::{Covariance, Family, Shape};
use crate::rng::{Key, Rng};
use rand::RngExt;
use rand_distr::StandardNormal;

/// Counts of clients whose weights are these, or spread around them.
fn clients(centres: &[[f64; 3]], strength: f64, each: usize, rows: f64, random: &mut Rng) -> Counts {
    let mut values = Vec::new();
    for _ in 0..each {
        for centre in centres {
            values.extend(search::draw_counts(centre, strength, rows, random));
        }
    }
    Counts { components: 3, values }
}

#[test]
fn strength_and_weights_of_one_family_are_found() {
    let counts = clients(&[[0.5, 0.3, 0.2]], 12.0, 400, 60.0, &mut Key::new(1).rng());
    let found = Families::one(&counts);
    assert!((found.strength / 12.0 - 1.0).abs() < 0.15, "{}", found.strength);
    let wanted = [0.5, 0.3, 0.2];
    assert!(
        found.centres[0].iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 0.02),
        "{:?}",
        found.centres
    );
    let alike = Families::one(&clients(&[[0.5, 0.3, 0.2]], 1e9, 100, 60.0, &mut Key::new(2).rng()));
    assert!(alike.strength > 300.0, "{}", alike.strength);
}

#[test]
fn families_are_told_from_a_continuum() {
    let key = Key::new(7);
    let apart = clients(&[[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], 60.0, 20, 50.0, &mut key.rng());
    let (found, steps) = search_families(&apart, &key);
    assert_eq!(found.len(), 2, "{steps:?}");
    let labels: Vec<bool> = apart.each().map(|own| found.responsibilities(own)[0] > 0.5).collect();
    assert!(labels.chunks(2).all(|pair| pair == &labels[..2] && pair[0] != pair[1]), "every client is in its family");
    let continuum = clients(&[[0.4, 0.35, 0.25]], 6.0, 40, 50.0, &mut key.rng());
    assert_eq!(search_families(&continuum, &key).0.len(), 1);
    let few = clients(&[[0.9, 0.05, 0.05], [0.05, 0.9, 0.05]], 60.0, 9, 50.0, &mut key.rng());
    assert_eq!(search_families(&few, &key).0.len(), 1, "18 clients are too few");
}

/// Folds of clients with mean 0, but for a shift of each client's own.
fn blocks(clients: usize, shift: f64, random: &mut Rng) -> Vec<Blocks> {
    let client = |_| {
        let own: f64 = shift * random.sample::<f64, _>(StandardNormal);
        let fold = |_| vec![(random.sample::<f64, _>(StandardNormal) + own) / 5f64.sqrt()];
        Blocks { folds: (0..5).map(fold).collect(), shares: vec![(1.0 / clients as f64).sqrt()] }
    };
    (0..clients).map(client).collect()
}

#[test]
fn differences_are_seen_as_often_as_is_claimed() {
    let mut random = Key::new(3).rng();
    let p = |shift: f64, random: &mut Rng, number: u64| {
        difference(&blocks(30, shift, random), &Key::new(number)).expect("thirty clients")
    };
    let alike = (0..200).filter(|&number| p(0.0, &mut random, number) <= 0.05).count();
    assert!((2..=20).contains(&alike), "{alike} of 200 at a level of 5 %");
    let apart = (0..20).filter(|&number| p(1.0, &mut random, number) <= 0.05).count();
    assert!(apart >= 18, "{apart} of 20");
    assert_eq!(difference(&blocks(1, 1.0, &mut random), &Key::new(0)), None);
}

#[test]
fn a_row_is_worth_a_label_where_components_are_far_apart() {
    // Posteriors of 0 and 1, and posteriors that never change.
    assert!((efficiency(&[0.25, 0.75], &[0.25, 0.0, 0.0, 0.75]) - 1.0).abs() < 1e-12);
    let none = efficiency(&[0.25, 0.75], &[0.0625, 0.1875, 0.1875, 0.5625]);
    assert!((none - 0.01).abs() < 1e-9, "{none}");
    assert_eq!(efficiency(&[1.0], &[1.0]), 1.0);
}

#[test]
fn deviations_of_rows_from_the_mixture_are_standard_normal() {
    let shape = Shape { family: Family::Gaussian(Covariance::Diagonal), components: 2, columns: 2 };
    let params = [0.0, 0.0, 5.0, 5.0, 1.0, 2.0, 0.5, 1.0, 0.5, 0.5];
    let key = Key::new(5);
    let typical = Typical::new(&shape, &params, &key);
    let mut scratch = crate::mixture::Scratch::default();
    let deviation = |number: u64, factor: f64, scratch: &mut crate::mixture::Scratch| {
        let mut random = key.clone().number(number).rng();
        let mut values = crate::mixture::draw(&shape, &params, 0, 15, &mut random);
        values.extend(crate::mixture::draw(&shape, &params, 1, 15, &mut random));
        values.iter_mut().for_each(|value| *value *= factor);
        let rows = crate::mixture::Rows::new(&shape, &values, &[]);
        let densities = crate::mixture::Densities::of(&shape, &params, &rows, scratch);
        let all = (0..30).map(|row| densities.log_density(row, &[0.5, 0.5])).sum();
        typical.deviation(&[0.5, 0.5], 30.0, all)
    };
    let found: Vec<f64> = (0..400).map(|number| deviation(number, 1.0, &mut scratch)).collect();
    let mean = found.iter().sum::<f64>() / 400.0;
    let spread = (found.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 399.0).sqrt();
    assert!(mean.abs() < 0.2 && (spread - 1.0).abs() < 0.12, "{mean} ± {spread}");
    let low = found.iter().filter(|value| **value < -2.326).count();
    assert!(low <= 12, "{low} of 400 below the 1 % point");
    assert!(deviation(0, 1.6, &mut scratch) < -5.0);
    let p = outlying(&[0.1, -0.3, 0.2, -9.0, 0.4, -0.1, 0.0]);
    assert!(p[3] < 1e-6 && p.iter().enumerate().all(|(place, p)| place == 3 || *p > 0.2), "{p:?}");
}

#[test]
fn few_clients_in_one_place_are_told_from_a_rare_component() {
    // Two of twenty clients have the third component to themselves, and hardly anything else.
    let mut members = vec![vec![30.0, 10.0, 0.1]; 20];
    members[4] = vec![1.0, 0.0, 49.0];
    members[9] = vec![0.0, 0.5, 300.0];
    let found = shared_places(&members);
    let of = |wanted: &[usize]| {
        (0..20).map(|client| if wanted.contains(&client) { vec![2] } else { vec![] }).collect::<Vec<_>>()
    };
    assert_eq!(found, of(&[4, 9]));
    // One of them has rows elsewhere, too: a rare component of clients that are like the others.
    members[4] = vec![20.0, 10.0, 30.0];
    assert_eq!(shared_places(&members), of(&[9]));
    // Three are more than a tenth.
    members[4] = vec![1.0, 0.0, 49.0];
    members[5] = vec![1.0, 0.0, 49.0];
    assert_eq!(shared_places(&members), of(&[]));
    assert_eq!(shared_places(&[]), Vec::<Vec<usize>>::new());
}
