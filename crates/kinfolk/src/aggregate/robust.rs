//! Aggregation that a minority of hostile members cannot move far.
//!
//! | rule | what it is | paper |
//! |---|---|---|
//! | median, trimmed mean | of every coordinate by itself | Yin, Chen, Ramchandran, Bartlett 2018 |
//! | Krum, Multi-Krum | the member nearest to its neighbours; the mean of those | Blanchard, El Mhamdi, Guerraoui, Stainer 2017 |
//! | geometric median | the point of least total distance, by smoothed Weiszfeld steps | Pillutla, Kakade, Harchaoui 2022 |
//! | clipping | the mean of differences to a centre, none longer than a radius; and that again from there | Karimireddy, He, Jaggi 2021 |
//! | nearest-neighbour mixing | before any of these, every member becomes the mean of its nearest ones | Allouah et al. 2023 |
//! | bucketing | before any of these, members become the means of random groups | Karimireddy, He, Jaggi 2022 |
//!
//! Members are finite, unless a function says otherwise, and of one length; there is at least one. Lengths may overflow: such a
//! member is infinitely far from all others. Any number of threads gives the same bits.

use crate::num::{Matrix, add_scaled, distance, median as middle, multiply, multiply_add};
use rayon::prelude::*;

/// Coordinates transposed at a time: they fit into the L1 cache for some hundred members.
const COORDINATES: usize = 256;
/// Coordinates of all members in one matrix product.
const PANEL: usize = 2048;
/// Rows of a product that one thread computes.
const ROWS: usize = 16;

/// Number of members that a trimmed mean leaves out at each end: ⌊βJ⌋, never all of them.
pub(crate) fn trimmed(share: f64, members: usize) -> usize {
    ((share * members as f64).floor() as usize).min(members.saturating_sub(1) / 2)
}

/// The most members that may be hostile when this share is: ⌈βJ⌉, always a minority.
pub(crate) fn hostile(share: f64, members: usize) -> usize {
    // 0.1 · 30 is a little more than 3.
    ((share * members as f64 - 1e-9).ceil() as usize).min(members.saturating_sub(1) / 2)
}

/// The trimmed mean of every coordinate: the `cut` smallest values and as many of the largest are left out. NaN counts as larger
/// than all numbers.
pub(crate) fn trimmed_mean(members: &[&[f64]], cut: usize) -> Vec<f64> {
    let kept = (members.len() - 2 * cut) as f64;
    by_coordinate(members, |sorted| sorted[cut..sorted.len() - cut].iter().sum::<f64>() / kept)
}

/// The median of every coordinate; of an even number of members the mean of the two in the middle.
pub(crate) fn median(members: &[&[f64]]) -> Vec<f64> {
    by_coordinate(members, |sorted| 0.5 * (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]))
}

/// A number for every coordinate from its sorted values: the order of the members must not change the last bits of a sum.
fn by_coordinate(members: &[&[f64]], of_sorted: impl Fn(&[f64]) -> f64 + Sync) -> Vec<f64> {
    let count = members.len();
    let mut found = vec![0.0; members.first().map_or(0, |first| first.len())];
    found.par_chunks_mut(COORDINATES).enumerate().for_each_init(
        || vec![0.0; COORDINATES * count],
        |values, (chunk, found)| {
            let begin = chunk * COORDINATES;
            for (place, member) in members.iter().enumerate() {
                for (coordinate, &value) in member[begin..begin + found.len()].iter().enumerate() {
                    values[coordinate * count + place] = value;
                }
            }
            for (found, values) in found.iter_mut().zip(values.chunks_exact_mut(count)) {
                values.sort_unstable_by(f64::total_cmp);
                *found = of_sorted(values);
            }
        },
    );
    found
}

/// Calls `act` with the differences of all members to `about`, some coordinates at a time: where they begin, and a row-major matrix.
fn in_panels(members: &[&[f64]], about: &[f64], mut act: impl FnMut(usize, &[f64])) {
    let mut panel = Vec::new();
    for (chunk, about) in about.chunks(PANEL).enumerate() {
        let begin = chunk * PANEL;
        panel.clear();
        for member in members {
            panel.extend(member[begin..begin + about.len()].iter().zip(about).map(|(value, about)| value - about));
        }
        act(begin, &panel);
    }
}

/// Squared distances between members, row-major, from scalar products of their differences to `about`, which should be near
/// most of them. Infinite where they overflow.
pub(crate) fn squared_distances(members: &[&[f64]], about: &[f64]) -> Vec<f64> {
    let count = members.len();
    let mut products = vec![0.0; count * count];
    in_panels(members, about, |_, panel| {
        let width = panel.len() / count;
        let all = Matrix::new(panel, count, width).transpose();
        products.par_chunks_mut(ROWS * count).zip(panel.par_chunks(ROWS * width)).for_each(|(products, rows)| {
            multiply_add(products, 1.0, Matrix::new(rows, rows.len() / width, width), all);
        });
    });
    let lengths: Vec<f64> = (0..count).map(|place| products[place * (count + 1)]).collect();
    for (place, product) in products.iter_mut().enumerate() {
        let (one, other) = (place / count, place % count);
        let square = lengths[one] + lengths[other] - 2.0 * *product;
        *product = match one == other {
            true => 0.0,
            false if square.is_finite() => square.max(0.0),
            false => f64::INFINITY,
        };
    }
    products
}

/// The places of the `count` smallest numbers; of equal ones the first.
fn smallest(values: &[f64], count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..values.len()).collect();
    places.sort_by(|&one, &other| values[one].total_cmp(&values[other]));
    places.truncate(count);
    places.sort_unstable();
    places
}

/// For every member the mean squared distance to the n − f − 1 nearest others, when f may be hostile.
fn krum_scores(members: &[&[f64]], about: &[f64], hostile: usize) -> Vec<f64> {
    let count = members.len();
    let near = count.saturating_sub(hostile + 1);
    let score = |row: &[f64]| {
        let mut row = row.to_vec();
        row.sort_unstable_by(f64::total_cmp);
        // The first is the member itself.
        row.iter().skip(1).take(near).sum::<f64>() / near.max(1) as f64
    };
    squared_distances(members, about).chunks_exact(count).map(score).collect()
}

/// Krum: the place of the member that is nearest to its nearest others, when this many may be hostile.
pub(crate) fn krum(members: &[&[f64]], about: &[f64], hostile: usize) -> usize {
    smallest(&krum_scores(members, about, hostile), 1)[0]
}

/// Multi-Krum: the mean of all but the `hostile` members with the largest scores of Krum.
pub(crate) fn multi_krum(members: &[&[f64]], about: &[f64], hostile: usize) -> Vec<f64> {
    let chosen = smallest(&krum_scores(members, about, hostile), members.len() - hostile);
    let chosen: Vec<&[f64]> = chosen.into_iter().map(|place| members[place]).collect();
    mean(&chosen)
}

/// The plain mean.
pub(crate) fn mean(members: &[&[f64]]) -> Vec<f64> {
    weighted_mean(members, &vec![1.0 / members.len() as f64; members.len()])
}

/// Σ share · member, over shares that sum up to 1.
fn weighted_mean(members: &[&[f64]], shares: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; members[0].len()];
    sum.par_chunks_mut(PANEL).enumerate().for_each(|(chunk, sum)| {
        let begin = chunk * PANEL;
        for (member, &share) in members.iter().zip(shares).filter(|(_, share)| **share != 0.0) {
            add_scaled(sum, share, &member[begin..begin + sum.len()]);
        }
    });
    sum
}

fn distances(members: &[&[f64]], centre: &[f64]) -> Vec<f64> {
    members.par_iter().map(|member| distance(member, centre)).collect()
}

/// How the geometric median is searched for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weiszfeld {
    /// Distances count as at least this.
    pub smoothing: f64,
    /// Most steps.
    pub steps: usize,
    /// A step shorter than this share of the median distance is the last.
    pub tolerance: f64,
}

/// The weighted geometric median, by Weiszfeld's steps from `start`. Members infinitely far away do not count.
pub(crate) fn geometric_median(members: &[&[f64]], weights: &[f64], start: &[f64], how: Weiszfeld) -> Vec<f64> {
    let mut centre = start.to_vec();
    for _ in 0..how.steps {
        let away = distances(members, &centre);
        let pull = |(away, weight): (&f64, &f64)| weight / away.max(how.smoothing);
        let mut shares: Vec<f64> = away.iter().zip(weights).map(pull).collect();
        let all: f64 = shares.iter().sum();
        if all.is_nan() || all <= 0.0 {
            return centre;
        }
        shares.iter_mut().for_each(|share| *share /= all);
        let next = weighted_mean(members, &shares);
        let step = distance(&centre, &next);
        centre = next;
        if step <= how.tolerance * middle(away.into_iter()).unwrap_or(0.0) {
            break;
        }
    }
    centre
}

/// A centre plus the weighted mean of the members' differences to it, none of them longer than the radius; without one, than
/// the median difference. Members infinitely far away stay at the centre.
pub(crate) fn clipped_mean(members: &[&[f64]], weights: &[f64], centre: &[f64], radius: Option<f64>) -> Vec<f64> {
    let away = distances(members, centre);
    let radius = radius.unwrap_or_else(|| middle(away.iter().copied()).unwrap_or(0.0));
    let all: f64 = weights.iter().sum();
    let share = |(away, weight): (&f64, &f64)| {
        let kept = if *away <= radius { 1.0 } else { radius / away };
        weight * kept / all
    };
    let shares: Vec<f64> = away.iter().zip(weights).map(share).collect();
    let mut mean = centre.to_vec();
    mean.par_chunks_mut(PANEL).enumerate().for_each(|(chunk, mean)| {
        let begin = chunk * PANEL;
        let centre = &centre[begin..begin + mean.len()];
        for (member, &share) in members.iter().zip(&shares).filter(|(_, share)| **share > 0.0) {
            for ((mean, value), centre) in mean.iter_mut().zip(&member[begin..]).zip(centre) {
                *mean += share * (value - centre);
            }
        }
    });
    mean
}

/// Centred clipping: clipped means, each about the one before.
pub(crate) fn centred_clipping(
    members: &[&[f64]],
    weights: &[f64],
    start: &[f64],
    radius: Option<f64>,
    times: usize,
) -> Vec<f64> {
    (0..times).fold(start.to_vec(), |centre, _| clipped_mean(members, weights, &centre, radius))
}

/// Nearest-neighbour mixing: every member becomes the mean of the n − f nearest, itself among them, when f may be hostile. All
/// of them, one after the other.
pub(crate) fn mix_nearest(members: &[&[f64]], about: &[f64], hostile: usize) -> Vec<f64> {
    let (count, width) = (members.len(), about.len());
    let near = count - hostile;
    let mut shares = vec![0.0; count * count];
    let distances = squared_distances(members, about);
    for (shares, distances) in shares.chunks_exact_mut(count).zip(distances.chunks_exact(count)) {
        smallest(distances, near).into_iter().for_each(|place| shares[place] = 1.0 / near as f64);
    }
    let mut mixed = vec![0.0; count * width];
    let mut products = vec![0.0; count * PANEL.min(width)];
    in_panels(members, about, |begin, panel| {
        let columns = panel.len() / count;
        let products = &mut products[..count * columns];
        let rows = products.par_chunks_mut(ROWS * columns).zip(shares.par_chunks(ROWS * count));
        rows.for_each(|(products, shares)| {
            let shares = Matrix::new(shares, shares.len() / count, count);
            multiply(products, 1.0, shares, Matrix::new(panel, count, columns));
        });
        let about = &about[begin..begin + columns];
        for (mixed, products) in mixed.chunks_exact_mut(width).zip(products.chunks_exact(columns)) {
            let places = mixed[begin..begin + columns].iter_mut().zip(products).zip(about);
            places.for_each(|((mixed, product), about)| *mixed = product + about);
        }
    });
    mixed
}

/// Bucketing: the means of so many members each, in this order; the last bucket may be smaller. One after the other.
pub(crate) fn bucket(members: &[&[f64]], order: &[usize], size: usize) -> Vec<f64> {
    let mean_of = |places: &[usize]| mean(&places.iter().map(|&place| members[place]).collect::<Vec<_>>());
    order.chunks(size.max(1)).flat_map(mean_of).collect()
}

/// Weights of which none is more than this share of their sum: those above are cut down to it, which may take several turns.
/// With fewer members than the share allows for, all count alike.
pub(crate) fn cap_weights(weights: &mut [f64], share: f64) {
    if share * weights.len() as f64 <= 1.0 {
        return weights.fill(1.0);
    }
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&one, &other| weights[other].total_cmp(&weights[one]));
    let mut rest: f64 = weights.iter().sum();
    for (cut, &place) in order.iter().enumerate() {
        // With `cut` members at the limit x, x = share · (cut · x + rest).
        let limit = share * rest / (1.0 - share * cut as f64);
        if weights[place] <= limit {
            order[..cut].iter().for_each(|&heavy| weights[heavy] = limit);
            return;
        }
        rest -= weights[place];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::squared_distance;
    use crate::rng::Key;
    use rand::RngExt;
    use serde_json::Value;

    fn slices(members: &[Vec<f64>]) -> Vec<&[f64]> {
        members.iter().map(Vec::as_slice).collect()
    }

    #[test]
    fn a_trimmed_mean_leaves_both_ends_out() {
        let members = [[1.0, 5.0], [2.0, -9.0], [3.0, 6.0], [4.0, f64::NAN], [1000.0, 7.0]];
        let members: Vec<&[f64]> = members.iter().map(|member| &member[..]).collect();
        for share in [0.2, 0.39, 0.4] {
            assert_eq!(trimmed_mean(&members, trimmed(share, 5)), [3.0, 6.0]);
        }
        assert_eq!(trimmed_mean(&members[..3], 0), [2.0, 2.0 / 3.0]);
        assert_eq!(trimmed_mean(&members[..1], trimmed(0.49, 1)), [1.0, 5.0]);
        assert_eq!([0.15, 0.25, 0.49].map(|share| trimmed(share, 25)), [3, 6, 12]);
        assert_eq!([1, 2, 3, 4].map(|members| trimmed(0.49, members)), [0, 0, 1, 1]);
        assert!(trimmed_mean(&[], 0).is_empty());
    }

    #[test]
    fn a_trimmed_mean_does_not_see_the_order_of_its_members() {
        let member = |k: usize| -> Vec<f64> { (0..700).map(|i| ((i * 31 + k * 17) % 101) as f64 / 7.0).collect() };
        let members: Vec<Vec<f64>> = (0..11).map(member).collect();
        let forwards = slices(&members);
        let backwards: Vec<&[f64]> = forwards.iter().rev().copied().collect();
        let mean = trimmed_mean(&forwards, 2);
        assert_eq!(mean, trimmed_mean(&backwards, 2));
        for place in [0, 255, 256, 699] {
            let mut values: Vec<f64> = members.iter().map(|member| member[place]).collect();
            values.sort_by(f64::total_cmp);
            assert_eq!(mean[place], values[2..9].iter().sum::<f64>() / 7.0);
        }
    }

    #[test]
    fn hostile_members_are_rounded_up_and_a_minority() {
        assert_eq!([5, 10, 30, 12].map(|members| hostile(0.1, members)), [1, 1, 3, 2]);
        assert_eq!([1, 2, 3, 4, 9].map(|members| hostile(0.49, members)), [0, 0, 1, 1, 4]);
        assert_eq!(hostile(0.0, 7), 0);
    }

    /// Every rule on the same vectors as elsewhere (tests/reference/robust.py), to 1e-9. Of byzfl are the mean, median, trimmed mean, Krum,
    /// Multi-Krum, the geometric median, the clipped mean, centred clipping, nearest-neighbour mixing and bucketing; of our own few lines
    /// of NumPy are the last two with weights, and clipping at the median distance. byzfl also has rules that are not here (MDA, MoNNA, Meamed,
    /// CAF, SMEA, ARC).
    #[test]
    fn all_rules_are_those_of_byzfl_and_of_the_papers() {
        let cases: Value = serde_json::from_str(include_str!("../../tests/reference/robust.json")).unwrap();
        let list =
            |value: &Value| -> Vec<f64> { value.as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect() };
        let near = |found: &[f64], wanted: &Value, what: &str| {
            let wanted = match wanted[0].is_array() {
                true => wanted.as_array().unwrap().iter().flat_map(list).collect(),
                false => list(wanted),
            };
            assert_eq!(found.len(), wanted.len(), "{what}");
            let worst = found.iter().zip(&wanted).map(|(found, wanted)| (found - wanted).abs() / wanted.abs().max(1.0));
            let worst = worst.fold(0.0, f64::max);
            assert!(worst <= 1e-9, "{what}: {worst}");
        };
        for case in cases["cases"].as_array().unwrap() {
            let members: Vec<Vec<f64>> = case["vectors"].as_array().unwrap().iter().map(list).collect();
            let members = slices(&members);
            let f = case["hostile"].as_u64().unwrap() as usize;
            let (zero, ones) = (vec![0.0; members[0].len()], vec![1.0; members.len()]);
            near(&mean(&members), &case["mean"], "mean");
            near(&median(&members), &case["median"], "median");
            near(&trimmed_mean(&members, f), &case["trimmed_mean"], "trimmed mean");
            near(members[krum(&members, &zero, f)], &case["krum"], "krum");
            near(&multi_krum(&members, &zero, f), &case["multi_krum"], "multi-krum");
            // Differences to another point are as good.
            near(&multi_krum(&members, members[1], f), &case["multi_krum"], "multi-krum about a member");
            let three = Weiszfeld { smoothing: 0.1, steps: 3, tolerance: 0.0 };
            near(&geometric_median(&members, &ones, &zero, three), &case["geometric_median_3"], "three steps");
            let many = Weiszfeld { smoothing: 1e-6, steps: 400, tolerance: 0.0 };
            near(&geometric_median(&members, &ones, &zero, many), &case["geometric_median_400"], "400 steps");
            near(&clipped_mean(&members, &ones, &zero, Some(2.0)), &case["clipped_mean_2"], "norm clipping");
            near(&centred_clipping(&members, &ones, &zero, Some(1.5), 5), &case["centred_clipping_1.5_5"], "centred");
            let mixed = mix_nearest(&members, &zero, f);
            near(&mixed, &case["nnm"], "nearest-neighbour mixing");
            let mixed: Vec<&[f64]> = mixed.chunks_exact(zero.len()).collect();
            near(&trimmed_mean(&mixed, f), &case["nnm_trimmed_mean"], "trimmed mean of mixed");
            let order: Vec<usize> = list(&case["permutation"]).into_iter().map(|place| place as usize).collect();
            near(&bucket(&members, &order, 2), &case["buckets_2"], "bucketing");
            let own = |name: &str| &case["own"][name];
            let weights: Vec<f64> = (1..=members.len()).map(|place| place as f64).collect();
            let how = Weiszfeld { smoothing: 1e-6, steps: 20, tolerance: 0.0 };
            let found = geometric_median(&members, &weights, &zero, how);
            near(&found, own("weighted_geometric_median_20"), "geometric median with weights");
            let centre: Vec<f64> = members[0].iter().map(|value| 0.1 * value).collect();
            let found = clipped_mean(&members, &weights, &centre, None);
            near(&found, own("weighted_clipped_mean"), "clipping at the median distance, with weights");
        }
    }

    /// As many members and coordinates as panels and blocks are cut from.
    fn crowd(count: usize, width: usize) -> Vec<Vec<f64>> {
        let mut rng = Key::new(5).word("crowd").rng();
        (0..count).map(|_| (0..width).map(|_| rng.random_range(-1.0..1.0) + 100.0).collect()).collect()
    }

    #[test]
    fn distances_and_mixing_over_panels_are_the_plain_ones() {
        let members = crowd(37, 2 * PANEL + 77);
        let (members, about) = (slices(&members), vec![100.0; 2 * PANEL + 77]);
        let found = squared_distances(&members, &about);
        for (place, found) in found.iter().enumerate() {
            let wanted = squared_distance(members[place / 37], members[place % 37]);
            assert!((found - wanted).abs() <= 1e-9 * wanted.max(1.0), "{place}: {found} for {wanted}");
        }
        let mixed = mix_nearest(&members, &about, 12);
        for place in [0, 16, 36] {
            let near = smallest(&found[place * 37..][..37], 25);
            assert!(near.contains(&place));
            let wanted = mean(&near.into_iter().map(|place| members[place]).collect::<Vec<_>>());
            let worst = mixed[place * about.len()..].iter().zip(&wanted).map(|(one, other)| (one - other).abs());
            assert!(worst.fold(0.0, f64::max) < 1e-10);
        }
    }

    #[test]
    fn threads_change_no_bit() {
        let members = crowd(37, PANEL + 300);
        let (members, about) = (slices(&members), vec![99.0; PANEL + 300]);
        let weights: Vec<f64> = (1..38).map(f64::from).collect();
        let all = || {
            let how = Weiszfeld { smoothing: 1e-9, steps: 9, tolerance: 0.0 };
            [
                median(&members),
                multi_krum(&members, &about, 9),
                geometric_median(&members, &weights, &about, how),
                centred_clipping(&members, &weights, &about, None, 3),
                mix_nearest(&members, &about, 9),
            ]
        };
        let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(pool(1).install(all), pool(3).install(all));
    }

    /// Nine members near (1, …, 1) and three that are up to no good.
    #[test]
    fn a_minority_however_far_moves_no_rule_far() {
        let honest = crowd(9, 40);
        for far in [1e3, 1e100, 1e200, f64::MAX] {
            let evil: Vec<Vec<f64>> = (0..3).map(|_| vec![-far; 40]).collect();
            let members: Vec<&[f64]> = honest.iter().chain(&evil).map(Vec::as_slice).collect();
            let (about, ones) = (vec![99.5; 40], vec![1.0; 12]);
            let steps = Weiszfeld { smoothing: 1e-9, steps: 100, tolerance: 1e-12 };
            let mixed = mix_nearest(&members, &about, 3);
            let mixed: Vec<&[f64]> = mixed.chunks_exact(40).collect();
            let found = [
                ("median", median(&members)),
                ("trimmed mean", trimmed_mean(&members, 3)),
                ("krum", members[krum(&members, &about, 3)].to_vec()),
                ("multi-krum", multi_krum(&members, &about, 3)),
                ("geometric median", geometric_median(&members, &ones, &about, steps)),
                ("norm clipping", clipped_mean(&members, &ones, &about, None)),
                ("centred clipping", centred_clipping(&members, &ones, &about, None, 3)),
                ("mixed", trimmed_mean(&mixed, 3)),
            ];
            let spread = (40.0_f64 / 3.0).sqrt();
            for (rule, found) in found {
                let off = distance(&found, &[100.0; 40]);
                assert!(off < 2.0 * spread, "{rule} with {far:e}: {off} of {spread}");
            }
        }
    }

    #[test]
    fn copies_of_one_member_are_all_rules_answers() {
        let members = vec![vec![3.0, -1.0]; 5];
        let (members, weights) = (slices(&members), [1.0, 2.0, 3.0, 4.0, 5.0]);
        let how = Weiszfeld { smoothing: 1e-9, steps: 9, tolerance: 1e-9 };
        for found in [
            median(&members),
            multi_krum(&members, &[0.0; 2], 2),
            geometric_median(&members, &weights, &[0.0; 2], how),
            centred_clipping(&members, &weights, &[0.0; 2], None, 2),
            bucket(&members, &[4, 3, 2, 1, 0], 5),
        ] {
            assert!(distance(&found, &[3.0, -1.0]) < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn weights_count_in_the_geometric_median_and_in_clipped_means() {
        // On a line, the weighted median: 2 has more than half of the weight.
        let members = [vec![0.0], vec![1.0], vec![2.0]];
        let how = Weiszfeld { smoothing: 1e-12, steps: 300, tolerance: 0.0 };
        let found = geometric_median(&slices(&members), &[1.0, 1.0, 3.0], &[0.5], how);
        assert!((found[0] - 2.0).abs() < 1e-6, "{found:?}");
        // Differences 0, 1 and 2 to the centre 0, the last cut down to 1.5: (1 · 1 + 3 · 1.5)/5.
        assert_eq!(clipped_mean(&slices(&members), &[1.0, 1.0, 3.0], &[0.0], Some(1.5)), [1.1]);
        // Without a radius the median length, 1: (1 + 3)/5.
        assert_eq!(clipped_mean(&slices(&members), &[1.0, 1.0, 3.0], &[0.0], None), [0.8]);
    }

    #[test]
    fn no_weight_is_more_than_its_share() {
        let capped = |weights: &[f64], share: f64| {
            let mut weights = weights.to_vec();
            cap_weights(&mut weights, share);
            weights
        };
        assert_eq!(capped(&[1.0, 2.0, 3.0], 0.5), [1.0, 2.0, 3.0]);
        // x = ½(x + 3): 3 of 6.
        assert_eq!(capped(&[1.0, 2.0, 1e9], 0.5), [1.0, 2.0, 3.0]);
        // Two at the limit: x = ¼(2x + 4), 2 of 8.
        assert_eq!(capped(&[1.0, 9.0, 1.0, 1.0, 7.0, 1.0], 0.25), [1.0, 2.0, 1.0, 1.0, 2.0, 1.0]);
        assert_eq!(capped(&[1.0, 9.0, 5.0], 0.25), [1.0, 1.0, 1.0]);
    }
}
