//! Attackers that know what the honest clients answered to the same order, and agree on what they say themselves.
//!
//! | attack | what every attacker sends in place of its update |
//! |---|---|
//! | ALIE (Baruch, Baruch, Goldberg 2019) | mean + z · standard deviation of the honest ones: within what is usual in every coordinate |
//! | inner product (Xie, Koyejo, Gupta 2019) | −ε · mean of the honest ones |
//! | Min-Max, Min-Sum (Shejwalkar, Houmansadr 2021) | mean − γ · its direction, no farther from any honest one than these are from each other |
//! | mimic (Karimireddy, He, Jaggi 2022) | that of one honest client, always the first |
//! | backdoor (Bagdasaryan et al. 2020) | its own, so many times that a mean becomes what the attackers found (`backdoor.rs`) |
//! | Sybils | one direction, the same in every round, as long as a usual update; where clients choose, all of one cluster |
//! | wrong slot | its own, as if it had chosen another model |

use super::Attack;
use crate::num::{add_scaled, dot, median, norm, squared_distance};
use crate::rng::Key;
use rand_distr::{Distribution, StandardNormal};

/// The mean of some updates.
fn mean(honest: &[Vec<f64>]) -> Vec<f64> {
    let mut mean = vec![0.0; honest[0].len()];
    honest.iter().for_each(|update| add_scaled(&mut mean, 1.0 / honest.len() as f64, update));
    mean
}

/// The standard deviation of every coordinate, with n − 1; 0 for a single update.
fn deviation(honest: &[Vec<f64>], mean: &[f64]) -> Vec<f64> {
    let mut squares = vec![0.0; mean.len()];
    for update in honest {
        squares
            .iter_mut()
            .zip(update)
            .zip(mean)
            .for_each(|((sum, value), mean)| *sum += (value - mean) * (value - mean));
    }
    let freedom = honest.len().saturating_sub(1).max(1) as f64;
    squares.into_iter().map(|sum| (sum / freedom).sqrt()).collect()
}

/// What is sent in place of an update, beside these honest ones, of which there is at least one. `None` for attacks that look
/// different for every attacker.
pub(super) fn crafted(attack: Attack, strength: f64, honest: &[Vec<f64>]) -> Option<Vec<f64>> {
    let centre = mean(honest);
    Some(match attack {
        Attack::Alie => {
            let mut crafted = deviation(honest, &centre);
            crafted.iter_mut().zip(&centre).for_each(|(own, mean)| *own = mean + strength * *own);
            crafted
        }
        Attack::InnerProduct => centre.iter().map(|mean| -strength * mean).collect(),
        Attack::MinMax | Attack::MinSum => {
            let mut direction = centre.clone();
            let length = norm(&direction).max(f64::MIN_POSITIVE);
            direction.iter_mut().for_each(|value| *value /= -length);
            let far = if attack == Attack::MinMax { farthest_by_one } else { farthest_by_sum };
            let mut crafted = centre.clone();
            add_scaled(&mut crafted, far(honest, &centre, &direction), &direction);
            crafted
        }
        Attack::Mimic => honest[0].clone(),
        _ => return None,
    })
}

/// The largest γ with γ² + 2γb + c ≤ bound.
fn root(b: f64, c: f64, bound: f64) -> f64 {
    ((b * b + bound - c).max(0.0).sqrt() - b).max(0.0)
}

/// How far one may go from the centre in a direction of length 1, until the distance to one of the points is larger than
/// that between any two of them.
fn farthest_by_one(points: &[Vec<f64>], centre: &[f64], direction: &[f64]) -> f64 {
    let pairs = (0..points.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
    let bound = pairs.map(|(i, j)| squared_distance(&points[i], &points[j])).fold(0.0, f64::max);
    let offset = dot(centre, direction);
    let limit = |point: &Vec<f64>| root(offset - dot(point, direction), squared_distance(point, centre), bound);
    points.iter().map(limit).fold(f64::INFINITY, f64::min)
}

/// How far one may go from the centre in a direction of length 1, until the sum of squared distances to the points is larger
/// than that of any of them.
fn farthest_by_sum(points: &[Vec<f64>], centre: &[f64], direction: &[f64]) -> f64 {
    let sum = |of: &[f64]| points.iter().map(|point| squared_distance(point, of)).sum::<f64>();
    let bound = points.iter().map(|point| sum(point)).fold(0.0, f64::max);
    let count = points.len() as f64;
    let slope: f64 = points.iter().map(|point| dot(centre, direction) - dot(point, direction)).sum();
    root(slope / count, sum(centre) / count, bound / count)
}

/// The update of a Sybil: a usual length in a direction that is drawn once.
pub(super) fn of_sybils(seed: u64, strength: f64, honest: &[Vec<f64>]) -> Vec<f64> {
    let usual = median(honest.iter().map(|update| norm(update))).unwrap_or(0.0);
    let mut rng = Key::new(seed).word("faults").word("sybils").rng();
    let mut direction: Vec<f64> = StandardNormal.sample_iter(&mut rng).take(honest[0].len()).collect();
    let scale = strength * usual / norm(&direction).max(f64::MIN_POSITIVE);
    direction.iter_mut().for_each(|value: &mut f64| *value *= scale);
    direction
}

/// An update from its model.
pub(super) fn update(vector: &[f64], base: &[f64]) -> Vec<f64> {
    vector.iter().zip(base).map(|(value, base)| value - base).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::distance;
    use serde_json::Value;

    fn is_same(one: &[f64], other: &[f64]) -> bool {
        distance(one, other) <= 1e-9 * norm(one).max(1.0)
    }

    /// Every attack that is a formula, on the same honest vectors as elsewhere (tests/reference/robust.py), to 1e-9. Of byzfl are ALIE, inner
    /// products, mimics, and the sign flip, which there is that of the honest mean and here an inner product of strength 1; of our own few
    /// lines of NumPy Min-Max and Min-Sum, by bisection. Noise, label flips, an attacker's own update turned round, the backdoor, wrong
    /// slots and Sybils are by hand in `faults.rs`. byzfl's infinite vectors are left out here; it also searches for the strength
    /// of ALIE and of inner products that does most harm to one rule.
    #[test]
    fn attacks_are_those_of_byzfl_and_of_the_papers() {
        let cases: Value = serde_json::from_str(include_str!("../../../tests/reference/robust.json")).unwrap();
        let list =
            |value: &Value| -> Vec<f64> { value.as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect() };
        for case in cases["cases"].as_array().unwrap() {
            let vectors: Vec<Vec<f64>> = case["vectors"].as_array().unwrap().iter().map(list).collect();
            let honest = &vectors[..vectors.len() - case["hostile"].as_u64().unwrap() as usize];
            let found = |attack, strength, honest: &[Vec<f64>]| crafted(attack, strength, honest).unwrap();
            assert!(is_same(&found(Attack::Alie, 1.5, honest), &list(&case["attacks"]["alie_1.5"])));
            assert!(is_same(&found(Attack::InnerProduct, 2.0, honest), &list(&case["attacks"]["inner_product_2"])));
            assert!(is_same(&found(Attack::InnerProduct, 1.0, honest), &list(&case["attacks"]["sign_flip"])));
            assert!(is_same(&found(Attack::Mimic, 1.0, &honest[1..]), &list(&case["attacks"]["mimic_1"])));
            assert!(is_same(&found(Attack::MinMax, 1.0, honest), &list(&case["own"]["min_max"])));
            assert!(is_same(&found(Attack::MinSum, 1.0, honest), &list(&case["own"]["min_sum"])));
        }
    }

    #[test]
    fn min_max_and_min_sum_by_hand() {
        // Updates (1, 0), (3, 0), (2, 1): mean (2, ⅓), of length √37/3; farthest apart are the first two, 2.
        let honest = [vec![1.0, 0.0], vec![3.0, 0.0], vec![2.0, 1.0]];
        let found = crafted(Attack::MinMax, 1.0, &honest).unwrap();
        let worst = honest.iter().map(|point| distance(point, &found)).fold(0.0, f64::max);
        assert!((worst - 2.0).abs() < 1e-12, "as far as allowed, and no farther: {worst}");
        assert!(dot(&found, &[2.0, 1.0 / 3.0]) < dot(&[2.0, 1.0 / 3.0], &[2.0, 1.0 / 3.0]), "against the mean");
        // Sums of squares: 4 + 2 from the first, as from the second; 2 + 2 from the third.
        let found = crafted(Attack::MinSum, 1.0, &honest).unwrap();
        let sum: f64 = honest.iter().map(|point| squared_distance(point, &found)).sum();
        assert!((sum - 6.0).abs() < 1e-12, "{sum}");
        // One honest update allows no distance at all.
        for attack in [Attack::MinMax, Attack::MinSum] {
            assert!(is_same(&crafted(attack, 1.0, &honest[..1]).unwrap(), &honest[0]));
        }
    }

    #[test]
    fn sybils_go_one_way_at_a_usual_length() {
        let honest = [vec![3.0, 4.0], vec![0.0, 1.0], vec![0.0, -7.0]];
        let found = of_sybils(1, 2.0, &honest);
        assert!((norm(&found) - 10.0).abs() < 1e-12);
        assert!(is_same(&found, &of_sybils(1, 2.0, &honest)));
        assert!(!is_same(&found, &of_sybils(2, 2.0, &honest)));
    }
}
