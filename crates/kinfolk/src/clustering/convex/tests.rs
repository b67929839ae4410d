//! Closed forms, a general solver's values, properties, and input at the edges.

use super::*;
use crate::num::distance;
use crate::rng::Key;
use rand_distr::{Distribution, StandardNormal};

fn normal(count: usize, word: &str) -> Vec<f64> {
    let mut random = Key::new(1).word(word).rng();
    (0..count).map(|_| StandardNormal.sample(&mut random)).collect()
}

/// Points around `centres` places, the `i`th around place `i % centres`.
fn blobs(count: usize, dimension: usize, centres: usize, spread: f64) -> Vec<f64> {
    let places = normal(centres * dimension, "places");
    let noise = normal(count * dimension, "noise");
    let place = |at: usize| places[at / dimension % centres * dimension + at % dimension];
    noise.iter().enumerate().map(|(at, noise)| 5.0 * place(at) + spread * noise).collect()
}

fn all_pairs(count: usize) -> Weights {
    let pairs = (0..count).flat_map(|to| (0..to).map(move |from| Edge { from, to, weight: 1.0 }));
    Weights::Sparse(pairs.collect())
}

/// The objective itself, term by term.
fn objective(points: Points, weights: &Weights, lambda: f64, solution: &[f64]) -> Result<f64> {
    let dimension = points.dimension();
    let row = |point: usize| &solution[point * dimension..(point + 1) * dimension];
    let off: Vec<f64> = points.values().iter().zip(solution).map(|(a, u)| a - u).collect();
    let count = points.count();
    let length: f64 = match weights {
        Weights::Uniform => {
            (0..count).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| distance(row(i), row(j))).sum()
        }
        Weights::Neighbours { neighbours, decay } => {
            check_neighbours(*neighbours, *decay)?;
            let edges = neighbours::connect(points, *neighbours, *decay);
            edges.iter().map(|edge| edge.weight * distance(row(edge.from), row(edge.to))).sum()
        }
        Weights::Sparse(edges) => {
            merge(edges, count)?.iter().map(|edge| edge.weight * distance(row(edge.from), row(edge.to))).sum()
        }
    };
    Ok(0.5 * dot(&off, &off) + if length > 0.0 { lambda * length } else { 0.0 })
}

fn solve(values: &[f64], dimension: usize, weights: &Weights, lambda: f64) -> Convex {
    let points = Points::new(values, dimension).unwrap();
    let solved = cluster(points, weights, lambda).unwrap();
    let certificate = solved.certificate;
    let direct = objective(points, weights, lambda, &solved.solution).unwrap();
    assert!((certificate.primal - direct).abs() <= 1e-11 * direct.max(1e-300), "{certificate:?}, directly {direct}");
    assert!(certificate.gap >= 0.0 && certificate.gap <= 1e-7 * certificate.primal.max(1e-300), "{certificate:?}");
    solved
}

#[test]
fn two_points_meet_at_half_their_distance() {
    for weights in [Weights::Uniform, all_pairs(2)] {
        let apart = solve(&[0.0, 0.0, 3.0, 4.0], 2, &weights, 2.0);
        let expected = [1.2, 1.6, 1.8, 2.4];
        assert!(distance(&apart.solution, &expected) < 1e-9, "{:?}", apart.solution);
        assert_eq!((apart.clustering.clusters(), apart.certificate.undecided), (2, 0));
        assert_eq!(solve(&[0.0, 0.0, 3.0, 4.0], 2, &weights, 2.4999).clustering.clusters(), 2);
        let together = solve(&[0.0, 0.0, 3.0, 4.0], 2, &weights, 2.5001);
        assert!(distance(&together.solution, &[1.5, 2.0, 1.5, 2.0]) < 1e-9);
        assert_eq!((together.clustering.clusters(), together.certificate.undecided), (1, 0));
    }
}

#[test]
fn three_points_alike_meet_all_at_once() {
    // Side 2: pulls of a third of the side balance, so all three fuse at 2/3, before any two would at 1.
    let values = [-1.0, 0.0, 1.0, 0.0, 0.0, 3.0f64.sqrt()];
    for weights in [Weights::Uniform, all_pairs(3)] {
        assert_eq!(solve(&values, 2, &weights, 0.6666).clustering.clusters(), 3);
        assert_eq!(solve(&values, 2, &weights, 0.6667).clustering.clusters(), 1);
    }
}

#[test]
fn points_on_a_line_by_hand() {
    // With λ = 1 the first two, 1 apart, fuse (1 ≤ 2 λ); their mean 0.5 moves by λ, the third, at 10, by −2 λ.
    let solved = solve(&[0.0, 1.0, 10.0], 1, &Weights::Uniform, 1.0);
    assert_eq!(solved.clustering.labels, [0, 0, 1]);
    assert!(distance(&solved.solution, &[1.5, 1.5, 8.0]) < 1e-9, "{:?}", solved.solution);
}

#[test]
fn an_unequal_pull_takes_a_group_apart_again() {
    // Weights 1, 1 and 4 on a line at 0, 1 and 3: points 1 and 2 fuse first; only outside pulls hold point 0 back.
    let weights = Weights::Sparse(vec![Edge { from: 0, to: 1, weight: 1.0 }, Edge { from: 1, to: 2, weight: 4.0 }]);
    let points = [0.0, 1.0, 3.0];
    let fused = solve(&points, 1, &weights, 0.3);
    assert_eq!(fused.clustering.labels, [0, 1, 1]);
    // u_0 = λ, the pair's mean 2 moves by −λ/2.
    assert!(distance(&fused.solution, &[0.3, 1.85, 1.85]) < 1e-9, "{:?}", fused.solution);
}

#[derive(serde::Deserialize)]
struct Reference {
    dimension: usize,
    points: Vec<f64>,
    edges: Option<Vec<(usize, usize, f64)>>,
    lambda: f64,
    objective: f64,
}

#[test]
fn objectives_agree_with_a_general_solver() {
    let problems: Vec<Reference> = serde_json::from_str(include_str!("../../../tests/reference/convex.json")).unwrap();
    assert!(problems.len() > 50);
    for (at, problem) in problems.iter().enumerate() {
        let weights = problem.edges.as_ref().map_or(Weights::Uniform, |edges| {
            Weights::Sparse(edges.iter().map(|&(from, to, weight)| Edge { from, to, weight }).collect())
        });
        let certificate = solve(&problem.points, problem.dimension, &weights, problem.lambda).certificate;
        let apart = (certificate.primal - problem.objective).abs() / problem.objective;
        assert!(apart < 1e-7, "problem {at}: {certificate:?}, want {}", problem.objective);
        assert!(certificate.dual <= problem.objective * (1.0 + 1e-7), "problem {at}");
    }
}

#[test]
fn both_solvers_agree_on_all_pairs() {
    let values = blobs(30, 4, 3, 0.7);
    for lambda in [0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4] {
        let dense = solve(&values, 4, &Weights::Uniform, lambda);
        let sparse = solve(&values, 4, &all_pairs(30), lambda);
        assert_eq!(dense.clustering.labels, sparse.clustering.labels, "λ = {lambda}");
        assert!(distance(&dense.solution, &sparse.solution) < 1e-3, "λ = {lambda}");
        assert_eq!((dense.certificate.undecided, sparse.certificate.undecided), (0, 0));
    }
}

#[test]
fn a_path_from_all_apart_to_all_together() {
    let values = blobs(40, 3, 4, 0.1);
    let points = Points::new(&values, 3).unwrap();
    let path = path(points, &Weights::Uniform, 25, &mut |_| Ok(())).unwrap();
    assert_eq!(path.steps.len(), 25);
    assert_eq!((path.steps[0].clusters, path.steps[24].clusters), (40, 1));
    for pair in path.steps.windows(2) {
        assert!(pair[0].clusters >= pair[1].clusters);
        // What is together stays together.
        let mut joined = HashMap::new();
        for (before, after) in pair[0].labels.iter().zip(&pair[1].labels) {
            assert_eq!(joined.entry(before).or_insert(after), &after);
        }
    }
    for step in &path.steps {
        let alone = solve(&values, 3, &Weights::Uniform, step.lambda);
        assert_eq!(alone.clustering.labels, step.labels, "λ = {}", step.lambda);
        assert!((alone.certificate.primal - step.certificate.primal).abs() < 1e-7 * alone.certificate.primal);
    }
    let longest = super::super::number::choose_by_path(points, &path, true).unwrap();
    assert_eq!(longest.0.clusters, 4);
}

#[test]
fn a_path_with_neighbours_agrees_with_single_solutions() {
    let values = blobs(60, 2, 3, 0.5);
    let points = Points::new(&values, 2).unwrap();
    let weights = Weights::Neighbours { neighbours: 5, decay: None };
    let path = path(points, &weights, 15, &mut |_| Ok(())).unwrap();
    for step in &path.steps {
        let alone = solve(&values, 2, &weights, step.lambda);
        assert!((alone.certificate.primal - step.certificate.primal).abs() < 1e-7 * alone.certificate.primal);
        if alone.certificate.undecided + step.certificate.undecided == 0 {
            assert_eq!(alone.clustering.labels, step.labels, "λ = {}", step.lambda);
        }
    }
    let undecided: usize = path.steps.iter().map(|step| step.certificate.undecided).sum();
    assert_eq!(undecided, 0);
}

#[test]
fn every_thread_count_gives_the_same_bits() {
    let values = blobs(300, 3, 4, 0.4);
    let weights = Weights::Neighbours { neighbours: 6, decay: None };
    let bits = |threads: usize, weights: &Weights, lambda: f64| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let solved = pool.install(|| cluster(Points::new(&values, 3).unwrap(), weights, lambda).unwrap());
        (solved.clustering.labels, solved.solution.iter().map(|value| value.to_bits()).collect::<Vec<_>>())
    };
    for (weights, lambda) in [(&Weights::Uniform, 0.02), (&weights, 0.3)] {
        assert_eq!(bits(1, weights, lambda), bits(3, weights, lambda));
    }
}

#[test]
fn shifted_and_scaled_points_give_shifted_and_scaled_solutions() {
    let values = blobs(20, 2, 2, 0.5);
    let moved: Vec<f64> = values.iter().map(|value| 1e6 + 1e-3 * value).collect();
    let (plain, far) = (solve(&values, 2, &Weights::Uniform, 0.1), solve(&moved, 2, &Weights::Uniform, 1e-4));
    assert_eq!(plain.clustering.labels, far.clustering.labels);
    let back: Vec<f64> = far.solution.iter().map(|value| (value - 1e6) * 1e3).collect();
    assert!(distance(&plain.solution, &back) < 1e-4);
}

#[test]
fn input_at_the_edges() {
    let neighbours = Weights::Neighbours { neighbours: 3, decay: None };
    for weights in [&Weights::Uniform, &neighbours] {
        let clusters =
            |values: &[f64], dimension, lambda| solve(values, dimension, weights, lambda).clustering.clusters();
        assert_eq!(clusters(&[7.0, 8.0], 2, 1.0), 1, "one point");
        assert_eq!(clusters(&[7.0; 10], 2, 0.5), 1, "identical points");
        assert_eq!(clusters(&[7.0; 10], 2, 0.0), 1, "identical points, λ = 0");
        assert_eq!(clusters(&[1.0, 2.0, 1.0, 3.0], 1, 0.0), 3, "λ = 0");
        assert_eq!(clusters(&[1.0, 2.0, 1.0, 3.0], 1, f64::INFINITY), 1, "λ = ∞");
        assert_eq!(clusters(&[1.0, 5.0, 2.0, 5.0, 30.0, 5.0], 2, 0.7), 2, "a constant column");
        assert_eq!(clusters(&normal(3 * 50, "wide"), 50, 0.1), 3, "more numbers than points");
        assert_eq!(clusters(&normal(3 * 50, "wide"), 50, 50.0), 1, "more numbers than points");
        assert_eq!(clusters(&[1e150, -1e150], 1, 1.0), 2, "very large");
        assert_eq!(clusters(&[1e-200, -1e-200, 5e-200], 1, 1e-202), 3, "very small");
        assert_eq!(clusters(&[1e-200, -1e-200], 1, 1.0), 1, "very small");
        assert_eq!(clusters(&[0.0, 1e-30, 1.0], 1, 0.0), 3, "distinct, if only just");
        for values in [vec![4.0, 4.0, 4.0], vec![1.0], vec![1.0, 2.0]] {
            let path = path(Points::new(&values, 1).unwrap(), weights, 5, &mut |_| Ok(())).unwrap();
            assert_eq!(path.steps.last().unwrap().clusters, 1);
        }
    }
    let points = Points::new(&[1.0, 2.0], 1).unwrap();
    let message = |weights: &Weights, lambda| cluster(points, weights, lambda).unwrap_err().to_string();
    assert!(message(&Weights::Uniform, -1.0).contains("lambda: got -1"));
    assert!(message(&Weights::Uniform, f64::NAN).contains("lambda: got NaN"));
    assert!(message(&Weights::Neighbours { neighbours: 0, decay: None }, 1.0).contains("neighbours: got 0"));
    assert!(message(&Weights::Neighbours { neighbours: 1, decay: Some(-1.0) }, 1.0).contains("decay: got -1"));
    let edge = |from, to, weight| Weights::Sparse(vec![Edge { from, to, weight }]);
    assert!(message(&edge(0, 2, 1.0), 1.0).contains("want numbers below 2"));
    assert!(message(&edge(1, 1, 1.0), 1.0).contains("point 1 twice"));
    assert!(message(&edge(0, 1, f64::NAN), 1.0).contains("got weight NaN"));
    assert_eq!(cluster(points, &edge(0, 1, 0.0), 9.0).unwrap().clustering.clusters(), 2, "no pull, no cluster");
}

#[test]
fn weights_that_vanish_hold_nothing_together() {
    // A far point has neighbours, but exp(−decay · distance²) is 0 for them.
    let mut values = blobs(40, 2, 2, 0.2);
    values.extend([1e3, 1e3]);
    let weights = Weights::Neighbours { neighbours: 5, decay: Some(1.0) };
    for lambda in [0.01, 1e3, 1e15, f64::INFINITY] {
        let solved = cluster(Points::new(&values, 2).unwrap(), &weights, lambda).unwrap();
        let alone = solved.clustering.labels[40];
        assert_eq!(solved.clustering.labels.iter().filter(|&&label| label == alone).count(), 1, "λ = {lambda}");
        assert!(solved.certificate.gap <= 1e-7 * solved.certificate.primal, "λ = {lambda}");
    }
    let none = Weights::Neighbours { neighbours: 5, decay: Some(1e9) };
    assert_eq!(cluster(Points::new(&values, 2).unwrap(), &none, 1.0).unwrap().clustering.clusters(), 41);
}

#[test]
fn duplicates_do_not_make_a_level() {
    let mut values = blobs(30, 2, 3, 0.2);
    let (first, again) = (values[..2].to_vec(), [values[2] + 1e-7, values[3]]);
    values.extend(first);
    values.extend(again);
    let points = Points::new(&values, 2).unwrap();
    let path = path(points, &Weights::Uniform, 30, &mut |_| Ok(())).unwrap();
    assert_eq!(super::super::number::choose_by_path(points, &path, true).unwrap().0.clusters, 3);
}

#[test]
fn a_long_chain_is_held_together() {
    let values: Vec<f64> = (0..300).map(|at| at as f64 + 0.3 * (at as f64).sin()).collect();
    let chain = (1..300).map(|to| Edge { from: to - 1, to, weight: 1.0 + 0.5 * (to as f64).cos() }).collect();
    let path = path(Points::new(&values, 1).unwrap(), &Weights::Sparse(chain), 8, &mut |_| Ok(())).unwrap();
    assert_eq!(path.steps.last().unwrap().clusters, 1);
    assert!(path.steps.iter().all(|step| step.certificate.gap <= 1e-7 * step.certificate.primal));
}
