//! The asynchronous steps against the algorithms written down plainly, client by client and step by step.

use super::algorithm::Algorithm;
use super::coins::{Chances, Coins, Step};
use super::convexity::convexity;
use super::fit::Fit;
use super::theory::Constants;
use super::{Families, Problem, Strengths};
use crate::compute::threads;
use crate::data::{Client, DataShape, Features, Shard, Targets};
use crate::federation::engines::local::LocalFederation;
use crate::federation::faults;
use crate::federation::work::{Addend, Advance, Blend, Start, Work};
use crate::federation::{Ask, Federation, Gather, Order, Phase, Recipients};
use crate::groups::Groups;
use crate::methods::al2sgd_plus::Accelerated;
use crate::methods::l2gd::{Iterations, Plain, mean_pull};
use crate::methods::room::{MethodLedger, MissingRule, Room};
use crate::models::{self, Model};
use crate::num::{add_scaled, distance, dot};
use crate::rng::Key;
use crate::settings::Settings;
use rand::RngExt;
use std::sync::Arc;

const WIDTH: usize = 3;

/// Clients of a linear model in clusters, with what a plain version needs of them.
struct World {
    clients: Vec<Client>,
    model: Arc<dyn Model>,
    /// XᵀX and Xᵀy of every client.
    curvatures: Vec<Vec<f64>>,
    moments: Vec<Vec<f64>>,
    groups: Groups,
}

impl World {
    fn new(groups: &[Option<usize>], rows: usize) -> Self {
        let kind = models::kind("linear").unwrap();
        let settings = toml::from_str("intercept = false").unwrap();
        let settings = Settings::check("model", kind.settings, settings, &mut Vec::new());
        let model = (kind.build)(&settings, DataShape::numbers(WIDTH, 0)).unwrap();
        let mut rng = Key::new(3).word("world").rng();
        let mut world = Self {
            clients: Vec::new(),
            model: Arc::from(model),
            curvatures: Vec::new(),
            moments: Vec::new(),
            groups: Groups {
                of: groups.iter().copied().collect(),
                names: (0..=groups.iter().flatten().copied().max().unwrap_or(0)).map(|name| name.to_string()).collect(),
                provisional: false,
            },
        };
        for (number, group) in groups.iter().enumerate() {
            let centre = group.unwrap_or(7) as f64;
            let x: Vec<f64> = (0..rows * WIDTH).map(|_| rng.random_range(-1.0..1.0)).collect();
            let truth: Vec<f64> = (0..WIDTH).map(|_| centre + rng.random_range(-0.5..0.5)).collect();
            let y: Vec<f64> = x.chunks(WIDTH).map(|row| dot(row, &truth) + rng.random_range(-0.5..0.5)).collect();
            let (mut curvature, mut moment) = (vec![0.0; WIDTH * WIDTH], vec![0.0; WIDTH]);
            for (row, y) in x.chunks(WIDTH).zip(&y) {
                add_scaled(&mut moment, *y, row);
                (0..WIDTH).for_each(|i| add_scaled(&mut curvature[i * WIDTH..(i + 1) * WIDTH], row[i], row));
            }
            let train = Shard::new(Features::F64 { columns: WIDTH, values: x }, Targets::Values(y)).unwrap();
            let test = train.pick(&[]);
            world.clients.push(Client { id: number.to_string(), train, test, group: None, truth: None });
            world.curvatures.push(curvature);
            world.moments.push(moment);
        }
        world
    }

    fn federation(&self) -> LocalFederation {
        let mut federation = LocalFederation::new(self.clients.clone(), threads(1).unwrap());
        federation.set_model(self.model.clone()).unwrap();
        federation
    }

    fn problem(&self) -> Problem {
        Problem {
            families: Families::from_groups(&self.groups),
            model: self.model.clone(),
            key: Key::new(5),
            rows: self.clients.iter().map(|client| client.train.len()).collect(),
            by: crate::aggregate::Weight::Rows,
            start: Arc::new(vec![0.0; WIDTH]),
            objective: None,
        }
    }

    /// ∇f_i, f_i = ½‖y − Xθ‖².
    fn slope(&self, client: usize, at: &[f64]) -> Vec<f64> {
        let rows = self.curvatures[client].chunks(WIDTH).zip(&self.moments[client]);
        rows.map(|(row, moment)| dot(row, at) - moment).collect()
    }
}

/// θ̄_j of every cluster, and θ̄.
fn means(points: &[Vec<f64>], problem: &Problem, strengths: &Strengths) -> (Vec<Vec<f64>>, Vec<f64>) {
    let alpha = strengths.alpha();
    let (mut own, mut all, mut whole) = (Vec::new(), vec![0.0; WIDTH], 0.0);
    for (cluster, members) in problem.families.members.iter().enumerate() {
        let total: f64 = members.iter().map(|&i| strengths.gamma[i as usize]).sum();
        let mut mean = vec![0.0; WIDTH];
        for &i in members {
            add_scaled(&mut mean, strengths.gamma[i as usize] / total, &points[i as usize]);
        }
        add_scaled(&mut all, alpha[cluster] * total, &mean);
        whole += alpha[cluster] * total;
        own.push(mean);
    }
    all.iter_mut().for_each(|value| *value /= whole);
    (own, all)
}

/// The gradient of one coin's outcome at some points: (3.2).
fn coin_gradient(
    world: &World,
    problem: &Problem,
    strengths: &Strengths,
    constants: &Constants,
    step: Step,
    points: &[Vec<f64>],
    client: usize,
) -> Vec<f64> {
    let cluster = problem.families.of[client];
    let (p0, pj) = (constants.chances.between, constants.chances.within[cluster]);
    let (alpha, gamma) = (strengths.alpha()[cluster], strengths.gamma[client]);
    let tau = p0 / (p0 + 2.0 * (1.0 - p0) * pj);
    let (own, all) = means(points, problem, strengths);
    let point = &points[client];
    let pull = |place: usize| match step {
        Step::Between => {
            gamma * alpha / p0 * (point[place] - all[place])
                + gamma * tau * (1.0 - alpha) / p0 * (point[place] - own[cluster][place])
        }
        Step::Within => gamma * (1.0 - tau) * (1.0 - alpha) / ((1.0 - p0) * pj) * (point[place] - own[cluster][place]),
        Step::Local => world.slope(client, point)[place] / ((1.0 - p0) * (1.0 - pj)),
    };
    (0..WIDTH).map(pull).collect()
}

/// ∇F, all clients.
fn whole_gradient(world: &World, problem: &Problem, strengths: &Strengths, points: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let (own, all) = means(points, problem, strengths);
    let of = |client: usize| {
        let cluster = problem.families.of[client];
        let (alpha, gamma) = (strengths.alpha()[cluster], strengths.gamma[client]);
        let mut gradient = world.slope(client, &points[client]);
        for (place, value) in gradient.iter_mut().enumerate() {
            let point = points[client][place];
            *value += alpha * gamma * (point - all[place]) + (1.0 - alpha) * gamma * (point - own[cluster][place]);
        }
        gradient
    };
    (0..points.len()).map(of).collect()
}

/// The constants of Algorithm 2.
const A: [f64; 2] = [0.2, 0.3];
const B: [f64; 2] = [0.9, 0.02];
const REFRESH: f64 = 0.15;

/// Algorithms 1 and 2 with the same coins, written down plainly.
fn plainly(
    world: &World,
    problem: &Problem,
    strengths: &Strengths,
    accelerated: bool,
    iterations: usize,
) -> Vec<Vec<f64>> {
    let constants = &constants();
    let refresh = accelerated.then_some(REFRESH);
    let mut coins = Coins::new(&constants.chances, refresh, problem.key.clone().word("coins"), iterations, 0);
    let count = world.clients.len();
    let mut y = vec![vec![0.0; WIDTH]; count];
    let (mut z, mut x) = (y.clone(), y.clone());
    for t in 0..iterations {
        if coins.refreshes_before(t) {
            x = y.clone();
        }
        let [a1, a2] = if accelerated { A } else { [0.0, 0.0] };
        let theta: Vec<Vec<f64>> = (0..count)
            .map(|i| (0..WIDTH).map(|c| a1 * z[i][c] + a2 * x[i][c] + (1.0 - a1 - a2) * y[i][c]).collect())
            .collect();
        let anchored = whole_gradient(world, problem, strengths, &x);
        for i in 0..count {
            let step = coins.step(problem.families.of[i], t);
            let mut g = coin_gradient(world, problem, strengths, constants, step, &theta, i);
            if accelerated {
                let [b1, b2] = B;
                add_scaled(&mut g, -1.0, &coin_gradient(world, problem, strengths, constants, step, &x, i));
                add_scaled(&mut g, 1.0, &anchored[i]);
                for c in 0..WIDTH {
                    z[i][c] = b1 * z[i][c] + (1.0 - b1) * theta[i][c] - b2 * g[c];
                }
            }
            y[i] = theta[i].clone();
            add_scaled(&mut y[i], -constants.step, &g);
        }
    }
    y
}

const GROUPS: [Option<usize>; 7] = [Some(0), Some(0), Some(0), Some(1), Some(1), Some(2), None];

fn strengths(problem: &Problem, alike: bool) -> Strengths {
    let gamma = (0..problem.rows.len()).map(|i| if alike { 0.7 } else { 0.4 + 0.3 * i as f64 }).collect();
    Strengths::new(&problem.families, gamma, vec![0.5, 1.5, 1.0, 2.0], 1.0)
}

fn constants() -> Constants {
    Constants { step: 0.01, chances: Chances { between: 0.3, within: vec![0.4, 0.2, 0.6, 0.0] } }
}

fn accelerated() -> Accelerated {
    let mut accelerated = Accelerated::default();
    (accelerated.a, accelerated.b, accelerated.refresh) = (A, B, REFRESH);
    accelerated
}

/// All iterations of an algorithm.
fn run<A: Algorithm>(
    world: &World,
    problem: &Problem,
    strengths: &Strengths,
    how: (Constants, A),
    count: usize,
) -> (Iterations<A>, LocalFederation) {
    let mut federation = world.federation();
    let mut iterations = Iterations::new(how, count, problem.start.clone(), strengths);
    let mut ledger = MethodLedger::new(MissingRule::Fail);
    while !iterations.round(problem, strengths, &mut Room::new(&mut federation, &mut ledger)).unwrap().finished {}
    (iterations, federation)
}

/// Whether an algorithm ends where its plain version does.
fn ends_as_plainly<A: Algorithm>(algorithm: impl Fn() -> A) {
    let world = World::new(&GROUPS, 6);
    let problem = world.problem();
    assert_eq!((problem.families.count(), problem.families.alone), (4, 1));
    for alike in [true, false] {
        let strengths = strengths(&problem, alike);
        for count in [1, 2, 3, 10, 97] {
            let wanted = plainly(&world, &problem, &strengths, A::ANCHOR.is_some(), count);
            let how = (constants(), algorithm());
            let (iterations, federation) = run(&world, &problem, &strengths, how, count);
            for (found, wanted) in federation.host().own_models().zip(&wanted) {
                let apart = distance(&found.1, wanted);
                assert!(apart < 1e-12, "{alike} {count} client {}: {apart}", found.0);
            }
            let (own, all) = means(&wanted, &problem, &strengths);
            let (clusters, global) = iterations.centres(&strengths);
            assert!(distance(&global, &all) < 1e-12);
            for ((cluster, mean), alpha) in clusters.iter().zip(&own).zip(strengths.alpha()) {
                let centre: Vec<f64> =
                    mean.iter().zip(&all).map(|(own, all)| (1.0 - alpha) * own + alpha * all).collect();
                assert!(distance(cluster, &centre) < 1e-12);
            }
        }
    }
}

#[test]
fn runs_sent_in_one_message_end_where_single_steps_do() {
    ends_as_plainly(|| Plain);
    ends_as_plainly(accelerated);
}

/// One local step that a client takes from these vectors; returns its model.
fn local_step<A: Algorithm>(
    world: &World,
    problem: &Problem,
    (constants, algorithm): (&Constants, &A),
    client: usize,
    vectors: &[Vec<f64>],
) -> Vec<f64> {
    let count = vectors.len();
    let chance = constants.chances.local(problem.families.of[client]);
    let add = (0..count).map(|place| Addend { to: place as u32, model: place + 1, times: 1.0 }).collect();
    let advance = Advance {
        from: Start::Model(0),
        vectors: count as u32,
        blend: Some(Blend { matrix: vec![0.0; count * count], add }),
        run: Some(algorithm.local_steps(constants.step, 1, chance, 0)),
        renewal: None,
        measured: None,
        send: Vec::new(),
        scale: problem.scale(1.0),
    };
    let models = std::iter::once(&vec![0.0; WIDTH]).chain(vectors).map(|model| Arc::new(model.clone())).collect();
    let order = Order { to: Recipients::list(vec![client as u32]), work: Work::Advance(advance) };
    let mut federation = world.federation();
    federation.ask(&Ask { phase: Phase::Train, models, orders: vec![order], gather: Gather::Each }).unwrap();
    federation.host().own_models().next().unwrap().1
}

/// Whether the gradient of an algorithm's steps, averaged exactly over the coins, is that of the objective. That the
/// gradients of single rows average to the whole is tested with the models.
fn is_unbiased<A: Algorithm>(algorithm: &A) {
    let world = World::new(&GROUPS, 6);
    let problem = world.problem();
    let strengths = strengths(&problem, false);
    let mut rng = Key::new(9).rng();
    let mut draw =
        || -> Vec<Vec<f64>> { (0..7).map(|_| (0..WIDTH).map(|_| rng.random_range(-1.0..1.0)).collect()).collect() };
    let (points, anchors) = (draw(), draw());
    let wanted = whole_gradient(&world, &problem, &strengths, &points);
    let anchored = whole_gradient(&world, &problem, &strengths, &anchors);
    let (own, all) = means(&points, &problem, &strengths);
    let (anchor_own, anchor_all) = means(&anchors, &problem, &strengths);
    let constants = constants();
    for i in 0..7 {
        let cluster = problem.families.of[i];
        let gamma = strengths.gamma[i];
        let chances = [
            (Step::Between, constants.chances.between),
            (Step::Within, (1.0 - constants.chances.between) * constants.chances.within[cluster]),
            (Step::Local, constants.chances.local(cluster)),
        ];
        // All vectors at the point, so that the step begins there; its length over η is the gradient.
        let vectors = [&points[i], &points[i], &anchors[i], &anchored[i]].map(Vec::clone)[..A::VECTORS].to_vec();
        let mut average = vec![0.0; WIDTH];
        for (step, chance) in chances.into_iter().filter(|(_, chance)| *chance > 0.0) {
            let after = match step {
                Step::Local => local_step(&world, &problem, (&constants, algorithm), i, &vectors),
                step => {
                    let pull = mean_pull(&constants.chances, cluster, strengths.alpha()[cluster], step);
                    let mut target = pull.target(&own[cluster], &all);
                    if A::ANCHOR.is_some() {
                        add_scaled(&mut target, -1.0, &pull.target(&anchor_own[cluster], &anchor_all));
                    }
                    let mut vectors = vectors.clone();
                    algorithm.take_step(constants.step, &mut vectors, gamma * pull.rate(), |gradient| {
                        add_scaled(gradient, -gamma, &target);
                    });
                    vectors.swap_remove(0)
                }
            };
            let gradient: Vec<f64> =
                after.iter().zip(&points[i]).map(|(after, before)| (before - after) / constants.step).collect();
            add_scaled(&mut average, chance, &gradient);
        }
        assert!(distance(&average, &wanted[i]) < 1e-12, "client {i}: {average:?} {:?}", wanted[i]);
    }
}

#[test]
fn both_gradient_estimators_are_unbiased() {
    is_unbiased(&Plain);
    let mut accelerated = accelerated();
    accelerated.a = [A[0], 0.0];
    is_unbiased(&accelerated);
}

#[test]
fn rounds_are_as_many_as_the_coins_bring_on_average() {
    let world = World::new(&[Some(0), Some(0), Some(1), Some(1)], 4);
    let problem = world.problem();
    let iterations = 6000;
    let chances = Chances { between: 0.2, within: vec![0.4, 0.3] };
    let with = |gamma: Vec<f64>| {
        let strengths = Strengths::new(&problem.families, gamma, vec![1.0; 2], 1.0);
        let constants = Constants { step: 0.001, chances: chances.clone() };
        run(&world, &problem, &strengths, (constants, Plain), iterations).0
    };
    // Counts of rounds vary less than those of a Poisson process.
    let near = |found: usize, wanted: f64| (found as f64 - wanted).abs() < 3.0 * wanted.sqrt();
    let alike = with(vec![1.0; 4]);
    let (between, within) = alike.expected_rounds();
    assert!((between - 6000.0 * 0.2 * 0.8 * 0.88 / (1.0 - 0.8 * 0.12)).abs() < 1e-9);
    assert!((within[0] - 6000.0 * 0.64 * 0.4 * 0.6).abs() < 1e-9);
    assert!(near(alike.between, between), "{} {between}", alike.between);
    assert!(
        alike.within.iter().zip(&within).all(|(found, wanted)| near(*found, *wanted)),
        "{:?} {within:?}",
        alike.within
    );
    // With one coin everybody answers at every round, and once more at the end.
    let one_coin = Chances { between: 0.2, within: vec![0.0, 0.0] };
    let strengths = Strengths::new(&problem.families, vec![1.0; 4], vec![1.0; 2], 1.0);
    let constants = Constants { step: 0.001, chances: one_coin };
    let (one, federation) = run(&world, &problem, &strengths, (constants, Plain), 500);
    let traffic = federation.meter().total();
    let last = traffic.asks - one.between as u64;
    assert!(last <= 1 && traffic.models_up == 4 * traffic.asks, "{traffic:?}, {} rounds", one.between);
    // Down goes one pull each time; with the first one, or instead of it, where everybody begins.
    assert!((0..=4).contains(&(traffic.models_down - 4 * traffic.asks)), "{traffic:?}");
    // Where clients of a cluster are pulled differently, every step towards means needs its round.
    let unlike = with(vec![1.0, 2.0, 1.0, 1.0]);
    assert!(near(unlike.between, 6000.0 * 0.2), "{}", unlike.between);
    assert!(near(unlike.within[0], 6000.0 * 0.8 * 0.4), "{:?}", unlike.within);
    assert!(near(unlike.within[1], within[1]), "{:?}", unlike.within);
}

#[test]
fn accelerated_steps_arrive_although_answers_get_lost() {
    let world = World::new(&GROUPS, 6);
    let problem = world.problem();
    let text = toml::from_str("silent = 0.2\nlate = 0.1\ngarbage = 0.1").unwrap();
    let misbehaving = Settings::check("faults", faults::SETTINGS, text, &mut Vec::new());
    for alike in [true, false] {
        let strengths = strengths(&problem, alike);
        let wanted = plainly(&world, &problem, &strengths, true, 60);
        let federation = world.federation();
        let faults = faults::transforms(&misbehaving, 4, federation.host().clients());
        let mut federation = federation.with_transforms(faults);
        let how = (constants(), accelerated());
        let mut iterations = Iterations::new(how, 60, problem.start.clone(), &strengths);
        let mut ledger = MethodLedger::new(MissingRule::Skip);
        while !iterations.round(&problem, &strengths, &mut Room::new(&mut federation, &mut ledger)).unwrap().finished {}
        for (found, wanted) in federation.host().own_models().zip(&wanted) {
            assert!(distance(&found.1, wanted) < 1e-12, "{alike} client {}: {:?} {wanted:?}", found.0, found.1);
        }
        assert!(ledger.note().is_some());
    }
}

/// The best linear unbiased predictor, by generalised least squares on all rows: y = Xw̄ + noise of covariance V, and the
/// client's model has the covariance C with y.
fn best_linear_unbiased(world: &World, problem: &Problem, within: f64, between: f64, noise: f64) -> Vec<Vec<f64>> {
    let rows: Vec<(usize, &[f64], f64)> = world
        .clients
        .iter()
        .enumerate()
        .flat_map(|(i, client)| {
            let Features::F64 { values, .. } = &**client.train.features() else { panic!() };
            values.chunks(WIDTH).zip(client.train.values().unwrap()).map(move |(x, y)| (i, x, *y)).collect::<Vec<_>>()
        })
        .collect();
    let count = rows.len();
    let together = |i: usize, k: usize| {
        let same = problem.families.of[i] == problem.families.of[k];
        f64::from(u8::from(i == k)) * within + f64::from(u8::from(same)) * between
    };
    let covariance: Vec<f64> = (0..count * count)
        .map(|place| {
            let ((i, x, _), (k, u, _)) = (rows[place / count], rows[place % count]);
            together(i, k) * dot(x, u) + if place / count == place % count { noise } else { 0.0 }
        })
        .collect();
    let solve = |b: &[f64], columns: usize| crate::num::solve_positive(&covariance, b, count, columns).unwrap();
    let x: Vec<f64> = rows.iter().flat_map(|(_, x, _)| x.iter().copied()).collect();
    let y: Vec<f64> = rows.iter().map(|(_, _, y)| *y).collect();
    let (weighted_x, weighted_y) = (solve(&x, WIDTH), solve(&y, 1));
    let (mut square, mut product) = (vec![0.0; WIDTH * WIDTH], vec![0.0; WIDTH]);
    for row in 0..count {
        for a in 0..WIDTH {
            add_scaled(
                &mut square[a * WIDTH..(a + 1) * WIDTH],
                x[row * WIDTH + a],
                &weighted_x[row * WIDTH..(row + 1) * WIDTH],
            );
            product[a] += x[row * WIDTH + a] * weighted_y[row];
        }
    }
    let global = crate::num::solve_positive(&square, &product, WIDTH, 1).unwrap();
    let residual: Vec<f64> = rows.iter().map(|(_, x, y)| y - dot(x, &global)).collect();
    let weighted = solve(&residual, 1);
    let predict = |i: usize| {
        let mut model = global.clone();
        rows.iter().zip(&weighted).for_each(|((k, x, _), weight)| add_scaled(&mut model, together(i, *k) * weight, x));
        model
    };
    (0..world.clients.len()).map(predict).collect()
}

#[test]
fn the_exact_minimiser_is_the_best_linear_unbiased_predictor() {
    for rows in [2, 6] {
        let world = World::new(&GROUPS, rows);
        let problem = world.problem();
        let (within, between, noise) = (0.4, 2.0, 0.3);
        let wanted = best_linear_unbiased(&world, &problem, within, between, noise);
        let strengths = Strengths::new(&problem.families, vec![1.0 / within; 7], vec![1.0 / between; 4], noise);
        let mut federation = world.federation();
        let mut fit = Fit::new(vec![problem.start.to_vec(); 4], &problem.start, 7);
        let round = problem.response_round(Phase::Train, noise);
        fit.run_to_the_end(
            &round,
            &strengths,
            &mut Room::new(&mut federation, &mut MethodLedger::new(MissingRule::Fail)),
        )
        .unwrap();
        for (found, wanted) in federation.host().own_models().zip(&wanted) {
            assert!(distance(&found.1, wanted) < 1e-11, "{rows} rows, client {}: {found:?} {wanted:?}", found.0);
        }
        assert_eq!(federation.meter().total().asks, 2);
    }
}

#[test]
fn convexity_is_that_of_the_whole_objective() {
    // Few rows: the losses by themselves do not curve in every direction, the objective does.
    for rows in [2, 6] {
        let world = World::new(&GROUPS, rows);
        let problem = world.problem();
        let strengths = strengths(&problem, true);
        // The Hessian, column by column, from the gradient: F is quadratic.
        let size = 7 * WIDTH;
        let at = |place: Option<usize>| -> Vec<f64> {
            let mut points = vec![vec![0.0; WIDTH]; 7];
            if let Some(place) = place {
                points[place / WIDTH][place % WIDTH] = 1.0;
            }
            whole_gradient(&world, &problem, &strengths, &points).concat()
        };
        let zero = at(None);
        let hessian: Vec<f64> = (0..size)
            .flat_map(|place| at(Some(place)).iter().zip(&zero).map(|(a, b)| a - b).collect::<Vec<_>>())
            .collect();
        let (least, _) = crate::num::extreme_eigenvalues(&hessian, size);
        let mut federation = world.federation();
        let alone = world.curvatures.iter().map(|a| crate::num::extreme_eigenvalues(a, WIDTH).0.max(0.0));
        let alone = alone.fold(f64::INFINITY, f64::min);
        let found = convexity(
            &problem,
            &strengths,
            alone,
            &mut Room::new(&mut federation, &mut MethodLedger::new(MissingRule::Fail)),
        )
        .unwrap();
        assert!(found <= least * 1.0001 && found > least / 2.5, "{rows} rows: {found}, want {least}");
    }
}
