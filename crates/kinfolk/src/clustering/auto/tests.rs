//! Sets like those of the calibration (`experiments/auto`), a handful, and cases that went wrong.

use super::*;
use crate::clustering::quality::adjusted_rand_index;
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal, StudentT};

type Random = crate::rng::Rng;

fn normal(random: &mut Random) -> f64 {
    StandardNormal.sample(random)
}

fn key(name: &str) -> Key {
    Key::new(17).word(name)
}

fn decide(values: &[f64], dimension: usize) -> Decision {
    find(Points::new(values, dimension).unwrap(), &Key::new(5), &mut |_| Ok(())).unwrap()
}

/// `size` points around each centre, each coordinate drawn from `noise`.
fn around(centres: &[Vec<f64>], size: usize, mut noise: impl FnMut(usize) -> f64) -> (Vec<f64>, Vec<usize>) {
    let labels: Vec<usize> = (0..centres.len() * size).map(|point| point % centres.len()).collect();
    let values = labels.iter().flat_map(|&label| centres[label].iter().map(move |centre| (label, centre)));
    (values.map(|(label, centre)| centre + noise(label)).collect(), labels)
}

fn square(side: f64, corners: usize) -> Vec<Vec<f64>> {
    [[0.0, 0.0], [side, 0.0], [0.0, side], [side, side]][..corners].iter().map(|corner| corner.to_vec()).collect()
}

/// Those set aside count for nobody.
fn assert_found(decision: &Decision, truth: &[usize], name: &str) {
    let kept: Vec<usize> = (0..truth.len()).filter(|point| !decision.aside.contains(point)).collect();
    let pick = |labels: &[usize]| kept.iter().map(|&point| labels[point]).collect::<Vec<_>>();
    let (found, truth) = (pick(&decision.clustering.labels), pick(truth));
    let clusters = truth.iter().max().unwrap() + 1;
    assert_eq!(decision.clustering.clusters(), clusters, "{name}: {}", decision.sureness.reason);
    assert!(adjusted_rand_index(&found, &truth) > 0.9, "{name}");
}

#[test]
fn one_cluster_where_auto_found_nineteen() {
    // A round Gaussian of 60 points in two columns; 40 clients alike with one and two features.
    for (count, dimension) in [(60, 2), (40, 1), (40, 2)] {
        for set in 0..4 {
            let mut random = key("one").number(set).rng();
            let values: Vec<f64> = (0..count * dimension).map(|_| normal(&mut random)).collect();
            let decision = decide(&values, dimension);
            assert_eq!(decision.clustering.clusters(), 1, "{count} x {dimension}: {}", decision.sureness.reason);
        }
    }
}

#[test]
fn few_points_of_one_cluster_are_not_certainly_two() {
    for count in 4..=6 {
        for set in 0..10 {
            let mut random = key("few").number(set).rng();
            let values: Vec<f64> = (0..count * 2).map(|_| normal(&mut random)).collect();
            let decision = decide(&values, 2);
            assert_ne!(decision.sureness.word, "certain");
            assert_eq!(decision.clustering.clusters(), 1, "{count} points: {}", decision.sureness.reason);
        }
    }
}

#[test]
fn ten_clusters_in_sixty_columns_are_not_one() {
    let mut random = key("high").rng();
    let centres: Vec<Vec<f64>> = (0..10).map(|_| (0..60).map(|_| 1.2 * normal(&mut random)).collect()).collect();
    let (values, labels) = around(&centres, 12, |_| normal(&mut random));
    assert_found(&decide(&values, 60), &labels, "high");
}

#[test]
fn clusters_that_noise_in_hundreds_of_columns_hides_are_found() {
    // Two clusters 16 apart in one of 400 directions: any two points are some 28 apart.
    let mut random = key("hidden").rng();
    let centres = [0.0, 16.0].map(|place| (0..400).map(|at| if at == 7 { place } else { 0.0 }).collect());
    let (values, labels) = around(&centres, 30, |_| normal(&mut random));
    assert_found(&decide(&values, 400), &labels, "hidden");
}

#[test]
fn points_that_fit_nobody_are_set_aside() {
    let mut random = key("noise").rng();
    let (mut values, labels) = around(&square(12.0, 3), 30, |_| normal(&mut random));
    let far = [[40.0, -30.0], [-25.0, 35.0], [45.0, 45.0], [-40.0, -35.0]];
    values.extend(far.as_flattened());
    let decision = decide(&values, 2);
    assert_eq!(decision.aside, (90..94).collect::<Vec<_>>());
    assert_found(&decision, &[labels, vec![0; 4]].concat(), "noise");
    // They count for no mean.
    let nearest = decision.clustering.labels[90];
    assert!(decision.clustering.centre(nearest).iter().all(|value| value.abs() < 13.0));
}

#[test]
fn heavy_tails_are_no_clusters() {
    let tails = StudentT::new(3.0).unwrap();
    let mut random = key("heavy").rng();
    for corners in [1, 4] {
        let (values, labels) = around(&square(9.0, corners), 40, |_| 0.7 * tails.sample(&mut random));
        assert_found(&decide(&values, 2), &labels, "heavy tails");
    }
}

#[test]
fn stretched_unequal_and_small_clusters_are_found() {
    let mut random = key("shapes").rng();
    // Rods with a deviation of 2 along and 0.3 across, upright and lying.
    let mut turn = 0;
    let (values, labels) = around(&square(8.0, 4), 25, |label| {
        turn += 1;
        normal(&mut random) * if (turn + label) % 2 == 0 { 2.0 } else { 0.3 }
    });
    assert_found(&decide(&values, 2), &labels, "stretched");
    let (values, labels) = around(&square(7.0, 4), 25, |label| normal(&mut random) * [0.2, 0.5, 0.9, 1.3][label]);
    assert_found(&decide(&values, 2), &labels, "unequal");
    // Two large clusters and one of five points.
    let (mut values, mut labels) = around(&square(9.0, 2), 40, |_| normal(&mut random));
    values.extend((0..5).flat_map(|_| [normal(&mut random), 9.0 + normal(&mut random)]));
    labels.extend([2; 5]);
    assert_found(&decide(&values, 2), &labels, "small");
}

#[test]
fn clear_clusters_are_certain_from_twenty_points_on() {
    let mut random = key("clear").rng();
    let (values, labels) = around(&square(10.0, 3), 10, |_| 0.1 * normal(&mut random));
    let decision = decide(&values, 2);
    assert_found(&decision, &labels, "clear");
    assert_eq!(decision.sureness.word, "certain", "{}", decision.sureness.reason);
    let (values, labels) = around(&square(10.0, 3), 5, |_| 0.1 * normal(&mut random));
    let decision = decide(&values, 2);
    assert_found(&decision, &labels, "few but clear");
    assert_ne!(decision.sureness.word, "certain");
}

#[test]
fn hardly_any_points_and_points_that_coincide() {
    let word = |values: &[f64], dimension| {
        let decision = decide(values, dimension);
        (decision.clustering.clusters(), decision.sureness.word)
    };
    assert_eq!(word(&[1.0, 2.0], 2), (1, "certain"));
    assert_eq!(word(&[1.0, 2.0], 1), (1, "unsure"));
    assert_eq!(word(&[1.0, 1.0, 9.0], 1).0, 1);
    // Three places with ten points each.
    let places: Vec<f64> = (0..30).map(|point| f64::from(point % 3)).collect();
    assert_eq!(decide(&places, 1).clustering.clusters(), 3);
}

#[test]
fn a_far_point_hides_no_clusters() {
    let mut random = key("far").rng();
    let (mut values, labels) = around(&square(10.0, 3), 15, |_| normal(&mut random));
    values.extend([1e7, -1e7]);
    let decision = decide(&values, 2);
    assert_eq!(decision.aside, [45]);
    assert_found(&decision, &[labels, vec![0]].concat(), "far");
}

#[test]
fn extreme_units_change_nothing() {
    let mut random = key("units").rng();
    let (values, labels) = around(&square(10.0, 3), 12, |_| normal(&mut random));
    for unit in [1e-150, 1e140] {
        let scaled: Vec<f64> = values.iter().map(|value| value * unit).collect();
        assert_found(&decide(&scaled, 2), &labels, "units");
    }
    let shifted: Vec<f64> = values.iter().map(|value| value + 1e9).collect();
    assert_found(&decide(&shifted, 2), &labels, "far from 0");
}

#[test]
fn thousands_of_points_are_clustered_by_some_of_them() {
    let mut random = key("many").rng();
    let (values, labels) = around(&square(9.0, 3), 1000, |_| normal(&mut random));
    let decision = decide(&values, 2);
    assert_found(&decision, &labels, "many");
    assert!(decision.notes[0].contains("among 600 of 3000 points"));
}

#[test]
fn threads_and_the_order_of_calls_change_nothing() {
    let mut random = key("threads").rng();
    let values: Vec<f64> = (0..80).map(|at| f64::from(at % 2) * 5.0 + random.random::<f64>()).collect();
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let decision = pool.install(|| decide(&values, 2));
        (decision.clustering, decision.aside, decision.sureness)
    };
    assert_eq!(on(1), on(3));
}

#[test]
fn overlapping_clusters_in_many_columns_are_not_certainly_one() {
    // As models of few rows are: noise of several sizes, and two centres less than two deviations apart.
    for set in 0..4 {
        let mut random = key("overlap").number(set).rng();
        let mut values = Vec::new();
        for point in 0..100 {
            values.push(normal(&mut random) + if point % 2 == 0 { 0.95 } else { -0.95 });
            values.extend((0..59).map(|_| 0.5 * normal(&mut random)));
            values.extend((0..200).map(|_| 0.15 * normal(&mut random)));
        }
        let Decision { clustering, sureness, .. } = decide(&values, 260);
        assert!(clustering.clusters() == 2 || sureness.word == "unsure", "{}: {}", sureness.word, sureness.reason);
    }
}
