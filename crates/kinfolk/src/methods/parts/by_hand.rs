//! Rounds of methods, beside the same computed by hand. Clients have one column that is always 1: a linear model is one number θ, and the
//! loss of a client whose targets are all y is (θ − y)², with slope 2 (θ − y).

use super::super::*;
use crate::compute::threads;
use crate::data::{Client, DataShape, Features, Shard, Targets};
use crate::federation::engines::Engine;
use crate::federation::engines::local::LocalFederation;
use crate::methods::room::MethodLedger;
use crate::models::Seat;
use crate::over::Over;
use std::sync::OnceLock;

/// A method during a run with its clients.
struct Play {
    method: Box<dyn Method>,
    federation: LocalFederation,
    ledger: MethodLedger,
    start: Vec<f64>,
}

fn model(name: &str, text: &str, shape: DataShape) -> Arc<dyn Model> {
    let kind = crate::models::kind(name).unwrap();
    let settings = Settings::check("model", kind.settings, toml::from_str(text).unwrap(), &mut Vec::new());
    Arc::from((kind.build)(&settings, shape).unwrap())
}

impl Play {
    fn new(name: &str, text: &str, model: Arc<dyn Model>, clients: Vec<Client>, over: Option<Over>) -> Self {
        let kind = kind(name).unwrap();
        let mut faults = Vec::new();
        let settings = Settings::check("method", kind.settings, toml::from_str(text).unwrap(), &mut faults);
        (kind.check)("method", &settings, &mut faults);
        assert!(faults.is_empty(), "{faults:?}");
        let rows: Vec<usize> = clients.iter().map(|client| client.train.len()).collect();
        let setup = Setup {
            place: format!("method.{name}"),
            curvature: None,
            settings: &settings,
            model: model.clone(),
            rows: &rows,
            truth: None,
            planted: None,
            groups: None,
            over,
            facts: Default::default(),
            seed: 0,
            key: Key::new(0),
        };
        let start = setup.common_start().unwrap().to_vec();
        let method = (kind.build)(setup).unwrap();
        let mut federation = LocalFederation::new(clients, threads(1).unwrap());
        federation.set_model(model).unwrap();
        Self { method, federation, ledger: MethodLedger::new(MissingRule::Skip), start }
    }

    /// Clients with these targets, each as often as it has rows.
    fn numbers(name: &str, text: &str, targets: &[(f64, usize)]) -> Self {
        let client = |(index, &(target, rows)): (usize, &(f64, usize))| {
            let features = Features::F64 { columns: 1, values: vec![1.0; rows] };
            Client::new(index.to_string(), Shard::new(features, Targets::Values(vec![target; rows])).unwrap())
        };
        let line = model("linear", "intercept = false", DataShape::numbers(1, 0));
        Self::new(name, text, line, targets.iter().enumerate().map(client).collect(), None)
    }

    fn round(&mut self) -> Progress {
        self.ledger.run_round(&mut *self.method, &mut self.federation).unwrap()
    }

    /// The first number of every model.
    fn models(&self) -> Vec<f64> {
        self.method.outcome().models.iter().map(|model| model[0]).collect()
    }

    /// What every client keeps.
    fn own(&self) -> Vec<Vec<f64>> {
        self.federation.own_models().unwrap().into_iter().map(|(_, own)| own).collect()
    }

    fn own_numbers(&self) -> Vec<f64> {
        self.own().iter().map(|own| own[0]).collect()
    }

    fn clusters(&self) -> Vec<Option<usize>> {
        match self.method.outcome().serving {
            Serving::Given(clusters) => clusters.each().to_vec(),
            other => panic!("{other:?}"),
        }
    }
}

#[track_caller]
fn close(found: &[f64], wanted: &[f64]) {
    let near = |(found, wanted): (&f64, &f64)| (found - wanted).abs() < 1e-10 * (1.0 + wanted.abs());
    assert!(found.len() == wanted.len() && found.iter().zip(wanted).all(near), "{found:?}, want {wanted:?}");
}

const THREE: [(f64, usize); 3] = [(1.0, 2), (3.0, 4), (8.0, 2)];
const TRAINING: &str = "rounds = 2\nlocal_steps = 2\nstep = 0.1\n";

fn slope(theta: f64, target: f64) -> f64 {
    2.0 * (theta - target)
}

/// Two plain steps of 0.1, with a pull.
fn steps(mut theta: f64, target: f64, strength: f64, centre: f64) -> f64 {
    for _ in 0..2 {
        theta -= 0.1 * (slope(theta, target) + strength * (theta - centre));
    }
    theta
}

fn mean(values: [f64; 3]) -> f64 {
    values.iter().sum::<f64>() / 3.0
}

fn mean_by_rows(values: [f64; 3]) -> f64 {
    (2.0 * values[0] + 4.0 * values[1] + 2.0 * values[2]) / 8.0
}

fn each(of: impl Fn(usize, f64) -> f64) -> [f64; 3] {
    [0, 1, 2].map(|client| of(client, THREE[client].0))
}

#[test]
fn fedprox() {
    let mut play = Play::numbers("fedprox", &format!("{TRAINING}pull = 0.5"), &THREE);
    let mut theta = play.start[0];
    for finished in [false, true] {
        assert_eq!(play.round().finished, finished);
        theta = mean_by_rows(each(|_, y| steps(theta, y, 0.5, theta)));
        close(&play.models(), &[theta]);
    }
}

#[test]
fn fine_tune() {
    let mut play = Play::numbers("fine-tune", &format!("{TRAINING}tune_steps = 1\ntune_step = 0.25"), &THREE);
    let mut theta = play.start[0];
    for round in 0..2 {
        play.round();
        theta = mean_by_rows(each(|_, y| steps(theta, y, 0.0, 0.0)));
        close(&play.models(), &[theta]);
        assert_eq!(play.method.stage().is_some(), round == 1);
    }
    assert!(play.round().finished);
    close(&play.own_numbers(), &each(|_, y| theta - 0.25 * slope(theta, y)));
}

/// The models of a method above are taken as they are.
#[test]
fn fine_tune_over_clusters() {
    let line = model("linear", "intercept = false", DataShape::numbers(1, 0));
    let client = |index: usize| {
        let features = Features::F64 { columns: 1, values: vec![1.0; 2] };
        Client::new(index.to_string(), Shard::new(features, Targets::Values(vec![THREE[index].0; 2])).unwrap())
    };
    let clusters = Some([Some(1), None, Some(0)].into_iter().collect());
    let over = Over { clusters, models: vec![Arc::new(vec![5.0]), Arc::new(vec![-1.0])] };
    let text = "over = \"above\"\ntune_steps = 1\nstep = 0.25\nrounds = 9";
    let mut play = Play::new("fine-tune", text, line, (0..3).map(client).collect(), Some(over));
    assert!(play.round().finished);
    // The client in no cluster begins by itself.
    let start = play.start[0];
    close(&play.own_numbers(), &[-1.0 + 0.5 * 2.0, start + 0.5 * (3.0 - start), 5.0 + 0.5 * 3.0]);
    close(&play.models(), &[5.0, -1.0, start]);
}

#[test]
fn ditto() {
    let mut play = Play::numbers("ditto", &format!("{TRAINING}pull = 0.5"), &THREE);
    let mut theta = play.start[0];
    let mut own = [theta; 3];
    for _ in 0..2 {
        play.round();
        own = each(|client, y| steps(own[client], y, 0.5, theta));
        theta = mean_by_rows(each(|_, y| steps(theta, y, 0.0, 0.0)));
        close(&play.models(), &[theta]);
        close(&play.own_numbers(), &own);
    }
}

#[test]
fn mr_mtl() {
    let mut play = Play::numbers("mr-mtl", &format!("{TRAINING}pull = 0.5"), &THREE);
    let mut theta = play.start[0];
    let mut own = [theta; 3];
    for _ in 0..2 {
        play.round();
        own = each(|client, y| steps(own[client], y, 0.5, theta));
        theta = mean(own);
        close(&play.models(), &[theta]);
        close(&play.own_numbers(), &own);
    }
}

#[test]
fn scaffold() {
    let mut play = Play::numbers("scaffold", &format!("{TRAINING}server_step = 0.5"), &THREE);
    let (mut x, mut c, mut own) = (play.start[0], 0.0, [0.0; 3]);
    for _ in 0..2 {
        play.round();
        let trained = each(|client, target| (0..2).fold(x, |y, _| y - 0.1 * (slope(y, target) - own[client] + c)));
        let change = each(|client, _| (x - trained[client]) / 0.2 - c);
        own = each(|client, _| own[client] + change[client]);
        (x, c) = (x + 0.5 * (mean(trained) - x), c + mean(change));
        close(&play.models(), &[x]);
        close(&play.own_numbers(), &own);
    }
}

#[test]
fn per_fedavg() {
    for (hessian, second) in [("none", 1.0), ("difference", 1.0 - 0.2 * 2.0)] {
        let text = format!("{TRAINING}inner_step = 0.2\nhessian = \"{hessian}\"");
        let mut play = Play::numbers("per-fedavg", &text, &THREE);
        let mut w = play.start[0];
        for _ in 0..2 {
            play.round();
            let step = |w: f64, y: f64| w - 0.1 * second * slope(w - 0.2 * slope(w, y), y);
            w = mean_by_rows(each(|_, y| step(step(w, y), y)));
            close(&play.models(), &[w]);
        }
        close(&play.own_numbers(), &each(|_, y| w - 0.2 * slope(w, y)));
    }
}

#[test]
fn pfedme() {
    let text = format!("{TRAINING}pull = 2.0\ninner_steps = 3\ninner_step = 0.05\nserver_step = 0.5");
    let mut play = Play::numbers("pfedme", &text, &THREE);
    let mut w = play.start[0];
    for _ in 0..2 {
        play.round();
        let train = |y: f64| {
            let (mut own, mut near) = (w, w);
            for _ in 0..2 {
                for _ in 0..3 {
                    near -= 0.05 * (slope(near, y) + 2.0 * (near - own));
                }
                own -= 0.1 * 2.0 * (own - near);
            }
            (own, near)
        };
        let trained = [0, 1, 2].map(|client| train(THREE[client].0));
        w += 0.5 * (mean(trained.map(|(own, _)| own)) - w);
        close(&play.models(), &[w]);
        close(&play.own_numbers(), &trained.map(|(_, near)| near));
    }
}

#[test]
fn apfl() {
    let mut play = Play::numbers("apfl", &format!("{TRAINING}share = 0.25"), &THREE);
    let mut w = play.start[0];
    let mut states = [(w, 0.25); 3];
    for _ in 0..2 {
        play.round();
        let trained = [0, 1, 2].map(|client| {
            let (y, (mut v, mut share), mut own) = (THREE[client].0, states[client], w);
            for step in 0..2 {
                let mixed = share * v + (1.0 - share) * own;
                if step == 0 {
                    share = f64::clamp(share - 0.1 * slope(mixed, y) * (v - own), 0.0, 1.0);
                }
                (own, v) = (own - 0.1 * slope(own, y), v - 0.1 * share * slope(mixed, y));
            }
            (own, v, share)
        });
        states = trained.map(|(_, v, share)| (v, share));
        w = mean_by_rows(trained.map(|(own, _, _)| own));
        close(&play.models(), &[w]);
        close(&play.own_numbers(), &trained.map(|(own, v, share)| share * v + (1.0 - share) * own));
    }
    close(&[play.method.outcome().extra["share_of_own"]], &[mean(states.map(|(_, share)| share))]);
}

#[test]
fn fedopt() {
    let text = format!("{TRAINING}server = \"adagrad\"\nserver_step = 0.5\nfirst = 0.25\nadaptivity = 0.1");
    let mut play = Play::numbers("fedopt", &text, &THREE);
    let (mut theta, mut m, mut v) = (play.start[0], 0.0, 0.01);
    for _ in 0..2 {
        play.round();
        let change = mean_by_rows(each(|_, y| steps(theta, y, 0.0, 0.0))) - theta;
        (m, v) = (0.25 * m + 0.75 * change, v + change * change);
        theta += 0.5 * m / (f64::sqrt(v) + 0.1);
        close(&play.models(), &[theta]);
    }
}

/// Its first step is as long as FedAvg's, and the step size stays.
#[test]
fn fedopt_by_itself() {
    let mut play = Play::numbers("fedopt", TRAINING, &THREE);
    let start = play.start[0];
    play.round();
    let first = mean_by_rows(each(|_, y| steps(start, y, 0.0, 0.0)));
    close(&play.models(), &[first]);
    let change = first - start;
    let (m, v) = (0.1 * change, 0.99 * 1e-6 + 0.01 * change * change);
    let step = change.abs() / (m.abs() / (v.sqrt() + 0.001));
    play.round();
    let change = mean_by_rows(each(|_, y| steps(first, y, 0.0, 0.0))) - first;
    let (m, v) = (0.9 * m + 0.1 * change, 0.99 * v + 0.01 * change * change);
    close(&play.models(), &[first + step * m / (v.sqrt() + 0.001)]);
    close(&[play.method.outcome().extra["server_step"]], &[step]);
}

#[test]
fn fedamp() {
    let text = format!("{TRAINING}pull = 0.5\nwidth = 4.0\nserver_step = 0.3");
    let mut play = Play::numbers("fedamp", &text, &THREE);
    let start = play.start[0];
    play.round();
    let first = each(|_, y| steps(start, y, 0.5, start));
    close(&play.own_numbers(), &first);
    play.round();
    let mixed = each(|i, _| {
        let share = |j: usize| 0.3 * (-(first[i] - first[j]) * (first[i] - first[j]) / 4.0).exp() / 4.0;
        let others = (0..3).filter(|&j| j != i);
        others.fold(first[i], |sum, j| sum + share(j) * (first[j] - first[i]))
    });
    close(&play.own_numbers(), &each(|i, y| steps(first[i], y, 0.5, mixed[i])));
}

#[test]
fn fedfomo() {
    let mut play = Play::numbers("fedfomo", &format!("{TRAINING}tried = 2\nheld_out = 2"), &THREE);
    let start = play.start[0];
    play.round();
    let first = each(|_, y| steps(start, y, 0.0, 0.0));
    close(&play.own_numbers(), &first);
    play.round();
    let loss = |theta: f64, y: f64| (theta - y) * (theta - y);
    let wanted = each(|i, y| {
        let weight = |j: usize| ((loss(first[i], y) - loss(first[j], y)) / (first[j] - first[i]).abs()).max(0.0);
        let others: Vec<usize> = (0..3).filter(|&j| j != i).collect();
        let total: f64 = others.iter().map(|&j| weight(j)).sum();
        let share = |j: usize| if total > 0.0 { weight(j) / total } else { 0.0 };
        let mixed = others.iter().fold(first[i], |sum, &j| sum + share(j) * (first[j] - first[i]));
        steps(mixed, y, 0.0, 0.0)
    });
    close(&play.own_numbers(), &wanted);
}

const TWO_KINDS: [(f64, usize); 4] = [(-1.0, 2), (5.0, 2), (-1.5, 2), (6.0, 2)];

#[test]
fn fesem() {
    let mut play = Play::numbers("fesem", &format!("{TRAINING}clusters = 2"), &TWO_KINDS);
    let start = play.start[0];
    let trained = TWO_KINDS.map(|(y, _)| steps(start, y, 0.0, 0.0));
    play.round();
    let clusters = play.clusters();
    assert!(clusters[0] == clusters[2] && clusters[1] == clusters[3] && clusters[0] != clusters[1]);
    let low = clusters[0].unwrap();
    let mut wanted = [0.0; 2];
    (wanted[low], wanted[1 - low]) = ((trained[0] + trained[2]) / 2.0, (trained[1] + trained[3]) / 2.0);
    close(&play.models(), &wanted);
    assert_eq!(play.round().switched, Some(0));
    let again = |client: usize| steps(wanted[clusters[client].unwrap()], TWO_KINDS[client].0, 0.0, 0.0);
    (wanted[low], wanted[1 - low]) = ((again(0) + again(2)) / 2.0, (again(1) + again(3)) / 2.0);
    close(&play.models(), &wanted);
}

/// One number has two directions. The second round is FedAvg inside the groups.
#[test]
fn groups_by_direction() {
    for (name, more) in
        [("fedgroup", "clusters = 2"), ("stocfl", "pull = 0.0\nweight = \"uniform\""), ("fedclust", "clusters = 2")]
    {
        let mut play = Play::numbers(name, &format!("{TRAINING}{more}"), &TWO_KINDS);
        let start = play.start[0];
        play.round();
        play.round();
        let clusters = play.clusters();
        assert!(clusters[0] == clusters[2] && clusters[1] == clusters[3] && clusters[0] != clusters[1], "{name}");
        let train = |theta: [f64; 2]| {
            let to = |group: usize, client: usize| steps(theta[group], TWO_KINDS[client].0, 0.0, 0.0);
            [(to(0, 0) + to(0, 2)) / 2.0, (to(1, 1) + to(1, 3)) / 2.0]
        };
        // FedClust only looks in its first round.
        let wanted = if name == "fedclust" { train([start; 2]) } else { train(train([start; 2])) };
        let models = play.models();
        close(&[models[clusters[0].unwrap()], models[clusters[1].unwrap()]], &wanted);
    }
}

/// The model of all pulls at those of the clusters, as it was when the round began.
#[test]
fn stocfl() {
    let mut play = Play::numbers("stocfl", &format!("{TRAINING}pull = 0.5"), &TWO_KINDS);
    let start = play.start[0];
    let (mut omega, mut theta) = (start, [start; 2]);
    for _ in 0..2 {
        play.round();
        let to = |client: usize| steps(theta[client % 2], TWO_KINDS[client].0, 0.5, omega);
        theta = [(to(0) + to(2)) / 2.0, (to(1) + to(3)) / 2.0];
        omega = TWO_KINDS.iter().map(|&(y, _)| steps(omega, y, 0.0, 0.0)).sum::<f64>() / 4.0;
        let (models, clusters) = (play.models(), play.clusters());
        close(&[models[clusters[0].unwrap()], models[clusters[1].unwrap()]], &theta);
        close(&[play.method.outcome().global.unwrap()[0]], &[omega]);
    }
}

/// Groups from three of the four; the fourth joins by the direction of its update, and each group leans to the other.
#[test]
fn fedgroup_with_a_newcomer() {
    let mut play = Play::numbers("fedgroup", &format!("{TRAINING}clusters = 2\nsample = 3\nbetween = 0.1"), &TWO_KINDS);
    let start = play.start[0];
    play.round();
    let first = play.clusters();
    let newcomer = first.iter().position(Option::is_none).unwrap();
    assert_eq!(first.iter().flatten().count(), 3);
    let mean = |of: &dyn Fn(usize) -> f64, members: &[usize]| {
        members.iter().map(|&client| of(client)).sum::<f64>() / members.len() as f64
    };
    let of_kind = |kind: usize, without: Option<usize>| -> Vec<usize> {
        (0..4).filter(|client| client % 2 == kind && Some(*client) != without).collect()
    };
    let trained = |client: usize| steps(start, TWO_KINDS[client].0, 0.0, 0.0);
    let theta = [0, 1].map(|kind| mean(&trained, &of_kind(kind, Some(newcomer))));
    assert_eq!(play.round().switched, Some(1));
    let clusters = play.clusters();
    assert!(clusters[0] == clusters[2] && clusters[1] == clusters[3] && clusters[0] != clusters[1]);
    let again = |client: usize| steps(theta[client % 2], TWO_KINDS[client].0, 0.0, 0.0);
    let inside = [0, 1].map(|kind| mean(&again, &of_kind(kind, None)));
    let wanted = [0, 1].map(|kind| inside[kind] + 0.1 * inside[1 - kind].signum());
    let models = play.models();
    close(&[models[clusters[0].unwrap()], models[clusters[1].unwrap()]], &wanted);
}

/// Everybody begins at the first model, whose gradients part the clients; in the third round those at the second model join them.
#[test]
fn cfl_gp() {
    let mut play = Play::numbers("cfl-gp", "rounds = 3\nlocal_steps = 2\nstep = 0.1\nclusters = 2", &TWO_KINDS);
    let start = play.models()[0];
    play.round();
    let clusters = play.clusters();
    assert!(clusters[0] == clusters[2] && clusters[1] == clusters[3] && clusters[0] != clusters[1]);
    let mut theta = [start; 2];
    for round in 0..3 {
        if round > 0 {
            assert_eq!(play.round().switched, Some(0));
        }
        let to = |client: usize| steps(theta[client % 2], TWO_KINDS[client].0, 0.0, 0.0);
        theta = [(to(0) + to(2)) / 2.0, (to(1) + to(3)) / 2.0];
        let models = play.models();
        close(&[models[clusters[0].unwrap()], models[clusters[1].unwrap()]], &theta);
        assert_eq!(play.clusters(), clusters);
    }
}

/// Rows along the first column, and along the second.
#[test]
fn pacfl_tells_subspaces_apart() {
    let client = |index: usize| {
        let row = if index.is_multiple_of(2) { [1.0, 0.1] } else { [0.1, 1.0] };
        let features = Features::F64 { columns: 2, values: row.repeat(3) };
        Client::new(index.to_string(), Shard::new(features, Targets::Values(vec![1.0; 3])).unwrap())
    };
    let plane = model("linear", "intercept = false", DataShape::numbers(2, 0));
    let text = format!("{TRAINING}directions = 1");
    let mut play = Play::new("pacfl", &text, plane, (0..4).map(client).collect(), None);
    play.round();
    assert_eq!(play.clusters(), [Some(0), Some(1), Some(0), Some(1)]);
    // Between clients of one kind no angle; between the kinds 90° − 2·arctan(0.1).
    assert!(play.method.outcome().extra["joined_at"].abs() < 1e-4);
    let plane = model("linear", "intercept = false", DataShape::numbers(2, 0));
    let text = format!("{text}\nclusters = 1");
    let mut play = Play::new("pacfl", &text, plane, (0..4).map(client).collect(), None);
    play.round();
    close(&[play.method.outcome().extra["joined_at"]], &[90.0 - 2.0 * f64::atan(0.1).to_degrees()]);
    // In one cluster it is FedAvg: two steps on a row that all have three times.
    let mut theta: Vec<[f64; 2]> = vec![[play.start[0], play.start[1]]; 2];
    for (theta, row) in theta.iter_mut().zip([[1.0, 0.1], [0.1, 1.0]]) {
        for _ in 0..2 {
            let off = theta[0] * row[0] + theta[1] * row[1] - 1.0;
            *theta = [0, 1].map(|place| theta[place] - 0.1 * 2.0 * off * row[place]);
        }
    }
    let found = play.method.outcome().models[0].to_vec();
    close(&found, &[0, 1].map(|place| (theta[0][place] + theta[1][place]) / 2.0));
}

#[test]
fn fedem_soft() {
    let mut play = Play::numbers("fedem-soft", &format!("{TRAINING}clusters = 2"), &THREE);
    let (mut theta, mut shares) = ([play.models()[0], play.models()[1]], [[0.5; 2]; 3]);
    for _ in 0..2 {
        play.round();
        let told = [0, 1, 2].map(|client| {
            let y = THREE[client].0;
            let likely = [0, 1].map(|k| shares[client][k] * (-(theta[k] - y) * (theta[k] - y)).exp());
            let parts = likely.map(|one| one / (likely[0] + likely[1]));
            let step = |theta: f64, part: f64| theta - 0.1 * part * slope(theta, y);
            (parts, [0, 1].map(|k| step(step(theta[k], parts[k]), parts[k])))
        });
        shares = told.map(|(parts, _)| parts);
        theta = [0, 1].map(|k| mean_by_rows(told.map(|(_, trained)| trained[k])));
        close(&play.models(), &theta);
        let Serving::Mixed { shares: found } = play.method.outcome().serving else { panic!("a mixture") };
        found.iter().zip(&shares).for_each(|(found, wanted)| close(found, wanted));
    }
}

/// Two of four clients drift from 0 to 10 at the second of three times; they get new models, which become one.
#[test]
fn feddrift_follows_clients_over_time() {
    let client = |index: usize| {
        let later = if index.is_multiple_of(2) { 0.0 } else { 10.0 };
        let values = [0.0, 0.0, later, later, later, later].to_vec();
        let features = Features::F64 { columns: 1, values: vec![1.0; 6] };
        Client::new(index.to_string(), Shard::new(features, Targets::Values(values)).unwrap())
    };
    let line = model("linear", "intercept = false", DataShape::numbers(1, 0));
    let text = "rounds = 30\nlocal_steps = 5\nstep = 0.2\ntimes = 3\nrise = 1.0";
    let mut play = Play::new("feddrift", text, line, (0..4).map(client).collect(), None);
    for round in 0..30 {
        play.round();
        let clusters = play.clusters();
        let models = play.models().len();
        match round {
            0..10 => assert_eq!((models, &clusters[..]), (1, &[Some(0); 4][..])),
            // Each of the two by itself, until their models are compared.
            10..20 => assert_eq!((models, &clusters[..]), (3, &[Some(0), Some(1), Some(0), Some(2)][..])),
            _ => assert_eq!((models, &clusters[..]), (2, &[Some(0), Some(1), Some(0), Some(1)][..])),
        }
    }
    close(&play.models(), &[0.0, 10.0]);
    let found = play.method.outcome().extra;
    assert_eq!((found["drifts"], found["merges"]), (2.0, 1.0));
}

/// One step at each of two times, which halves the way to a target: the second client drifts to 10 and gets a model of its own.
#[test]
fn feddrift() {
    let client = |(index, values): (usize, [f64; 4])| {
        let features = Features::F64 { columns: 1, values: vec![1.0; 4] };
        Client::new(index.to_string(), Shard::new(features, Targets::Values(values.to_vec())).unwrap())
    };
    let clients = [[0.0; 4], [0.0, 0.0, 10.0, 10.0]].into_iter().enumerate().map(client).collect();
    let line = model("linear", "intercept = false", DataShape::numbers(1, 0));
    let text = "rounds = 2\nlocal_steps = 1\nstep = 0.25\ntimes = 2\nrise = 1.0";
    let mut play = Play::new("feddrift", text, line.clone(), clients, None);
    let start = play.start[0];
    play.round();
    close(&play.models(), &[start / 2.0]);
    play.round();
    let new = setup::random_models(&*line, &Key::new(0), 0, 1).unwrap()[0][0];
    close(&play.models(), &[start / 4.0, (new + 10.0) / 2.0]);
    assert_eq!(play.clusters(), [Some(0), Some(1)]);
}

/// Two rounds with clients of different sizes: a row counts the less for a model, the more frequent its class is in that model's rows.
#[test]
fn fedrc() {
    let rows: [&[(f64, u32)]; 2] = [&[(1.0, 1), (-2.0, 0), (0.5, 1)], &[(1.5, 0)]];
    let client = |index: usize| {
        let features = Features::F64 { columns: 1, values: rows[index].iter().map(|row| row.0).collect() };
        let classes = rows[index].iter().map(|row| row.1).collect();
        Client::new(index.to_string(), Shard::new(features, Targets::Classes(classes)).unwrap())
    };
    let logistic = model("logistic", "intercept = false", DataShape::numbers(1, 2));
    let text = format!("{TRAINING}clusters = 2");
    let mut play = Play::new("fedrc", &text, logistic, (0..2).map(client).collect(), None);
    let sign = |class: u32| if class == 1 { 1.0 } else { -1.0 };
    let (mut theta, mut shares) = ([play.models()[0], play.models()[1]], [[0.5; 2]; 2]);
    // By models, then classes.
    let mut frequent = [[0.5; 2]; 2];
    for _ in 0..2 {
        play.round();
        let parts: Vec<Vec<[f64; 2]>> = (0..2)
            .map(|client| {
                let part = |&(x, class): &(f64, u32)| {
                    let likely = [0, 1].map(|k| {
                        let chance = 1.0 / (1.0 + (-sign(class) * theta[k] * x).exp());
                        shares[client][k] * chance / frequent[k][class as usize]
                    });
                    likely.map(|one| one / (likely[0] + likely[1]))
                };
                rows[client].iter().map(part).collect()
            })
            .collect();
        let size = |client: usize| rows[client].len() as f64;
        shares =
            [0, 1].map(|client| [0, 1].map(|k| parts[client].iter().map(|part| part[k]).sum::<f64>() / size(client)));
        let train = |client: usize, k: usize| {
            (0..2).fold(theta[k], |theta, _| {
                let slope = |(&(x, class), part): (&(f64, u32), &[f64; 2])| {
                    -part[k] * sign(class) * x / (1.0 + (sign(class) * theta * x).exp())
                };
                theta - 0.1 * rows[client].iter().zip(&parts[client]).map(slope).sum::<f64>() / size(client)
            })
        };
        theta = [0, 1].map(|k| (3.0 * train(0, k) + train(1, k)) / 4.0);
        let all = || rows.iter().zip(&parts).flat_map(|(rows, parts)| rows.iter().zip(parts));
        frequent = [0, 1].map(|k| {
            let sum = |class: u32| all().filter(|(row, _)| row.1 == class).map(|(_, part)| part[k]).sum::<f64>();
            [sum(0) / (sum(0) + sum(1)), sum(1) / (sum(0) + sum(1))]
        });
        close(&play.models(), &theta);
        let Serving::Mixed { shares: found } = play.method.outcome().serving else { panic!("a mixture") };
        found.iter().zip(&shares).for_each(|(found, wanted)| close(found, wanted));
    }
}

/// Classes 0 and 1 by the sign of a number, and the other way round; fedrc must tell them apart though the classes are as frequent.
#[test]
fn fedrc_tells_apart_what_y_does() {
    let client = |index: usize| {
        let values: Vec<f64> = (0..20).map(|row| f64::from(row) - 9.5).collect();
        let classes = values.iter().map(|&value| u32::from((value > 0.0) == (index.is_multiple_of(2)))).collect();
        let features = Features::F64 { columns: 1, values };
        Client::new(index.to_string(), Shard::new(features, Targets::Classes(classes)).unwrap())
    };
    let logistic = model("logistic", "", DataShape::numbers(1, 2));
    let text = "rounds = 40\nlocal_steps = 10\nstep = 0.1\nclusters = 2";
    let mut play = Play::new("fedrc", text, logistic, (0..6).map(client).collect(), None);
    while !play.round().finished {}
    let Serving::Mixed { shares } = play.method.outcome().serving else { panic!("a mixture") };
    let first = shares[0][0] > 0.5;
    for (client, shares) in shares.iter().enumerate() {
        assert!(shares.iter().any(|share| *share > 0.9), "{shares:?}");
        assert_eq!((shares[0] > 0.5) == first, client.is_multiple_of(2), "{shares:?}");
    }
}

/// A network of two layers, in double precision, and clients with rows of two columns.
fn layered() -> (Arc<dyn Model>, Vec<Client>) {
    let network = model("mlp", "hidden = [3]\nprecision = \"f64\"", DataShape::numbers(2, 2));
    let client = |index: usize| {
        let mut random = Key::new(index as u64).rng();
        let values = (0..16).map(|_| rand::RngExt::random_range(&mut random, -1.0..1.0)).collect();
        let features = Features::F64 { columns: 2, values };
        let classes = (0..8).map(|row| u32::from((row + index).is_multiple_of(3))).collect();
        Client::new(index.to_string(), Shard::new(features, Targets::Classes(classes)).unwrap())
    };
    (network, (0..3).map(client).collect())
}

/// Plain steps of 0.1 of some parameters alone, by the model's gradients.
fn descend(model: &dyn Model, client: &Client, params: &mut [f64], count: usize, moves: impl Fn(usize) -> bool) {
    let seat = Seat { client, prepared: &OnceLock::new(), may_prepare: false, secret: None };
    let mut gradient = vec![0.0; params.len()];
    for _ in 0..count {
        model.worker(&[]).slope(params, &seat, None, &mut gradient);
        let moved = params.iter_mut().zip(&gradient).enumerate().filter(|(place, _)| moves(*place));
        moved.for_each(|(_, (own, slope))| *own -= 0.1 * slope);
    }
}

type Moves<'a> = &'a dyn Fn(usize) -> bool;

/// Two rounds of a method that keeps parameters at home: who stays there, the stages of a round with their steps, and the last stage.
fn play_at_home(
    (name, more): (&str, &str),
    (network, clients): (Arc<dyn Model>, Vec<Client>),
    at_home: Moves,
    stages: &[(usize, Moves)],
    (tuned, tuning): (usize, Moves),
) {
    let mut play = Play::new(name, &format!("{TRAINING}{more}"), network.clone(), clients.clone(), None);
    let mut own = vec![play.start.clone(); clients.len()];
    let mut shared = play.start.clone();
    let put = |own: &mut Vec<f64>, shared: &[f64]| {
        let places = own.iter_mut().zip(shared).enumerate();
        places.filter(|(place, _)| !at_home(*place)).for_each(|(_, (own, shared))| *own = *shared);
    };
    for _ in 0..2 {
        play.round();
        for (own, client) in own.iter_mut().zip(&clients) {
            put(own, &shared);
            stages.iter().for_each(|(count, moves)| descend(&*network, client, own, *count, moves));
        }
        let mean = |place: usize| own.iter().map(|own| own[place]).sum::<f64>() / clients.len() as f64;
        shared = (0..shared.len()).map(mean).collect();
    }
    for (own, client) in own.iter_mut().zip(&clients) {
        put(own, &shared);
        descend(&*network, client, own, tuned, tuning);
    }
    play.own().iter().zip(&own).for_each(|(found, wanted)| close(found, wanted));
}

/// What stays at home, what is averaged, and what clients keep in the end, for every method that keeps layers at home.
#[test]
fn parameters_at_home() {
    let (network, clients) = layered();
    let last: Vec<usize> = network.layout().last_layer().into_iter().flatten().collect();
    assert_eq!(last.len(), 3 * 2 + 2);
    let all: Moves = &|_| true;
    let nothing: Moves = &|_| false;
    let head: Moves = &|place| last.contains(&place);
    let body: Moves = &|place| !last.contains(&place);
    let play = |named, at_home, stages: &[(usize, Moves)], end| {
        play_at_home(named, (network.clone(), clients.clone()), at_home, stages, end);
    };
    play(("fedper", ""), head, &[(2, all)], (0, nothing));
    play(("fedrep", "head_steps = 3"), head, &[(3, head), (2, body)], (0, nothing));
    play(("fedbabu", "tune_steps = 4"), head, &[(2, body)], (4, all));
    play(("lg-fedavg", ""), body, &[(2, all)], (0, nothing));
}

/// Small images with a network that normalises.
fn imaged(norm: &str) -> (Arc<dyn Model>, Vec<Client>) {
    use crate::data::Form;
    let form = Form::Image { channels: 1, height: 4, width: 4, augment: Default::default() };
    let text = format!("filters = [2]\nhidden = []\nprecision = \"f64\"\nnorm = \"{norm}\"");
    let network = model("cnn", &text, DataShape { columns: 16, classes: 2, form });
    let client = |index: usize| {
        let mut random = Key::new(index as u64).rng();
        let values = (0..8 * 16).map(|_| rand::RngExt::random_range(&mut random, 0.0..1.0 + index as f64)).collect();
        let features = Features::F64 { columns: 16, values };
        let classes = (0..8).map(|row| row % 2).collect();
        Client::new(index.to_string(), Shard::new(features, Targets::Classes(classes)).unwrap())
    };
    (network, (0..2).map(client).collect())
}

/// With group normalisation all is by gradients.
#[test]
fn fedbn() {
    let (network, clients) = imaged("group");
    let home: Vec<usize> = network.layout().normalisation().into_iter().flatten().collect();
    assert_eq!(home.len(), 2 * 2);
    let (all, nothing): (Moves, Moves) = (&|_| true, &|_| false);
    play_at_home(("fedbn", ""), (network, clients), &|place| home.contains(&place), &[(2, all)], (0, nothing));
}

/// With batch normalisation: scales, shifts and statistics differ from client to client in the end, and nothing else does.
#[test]
fn fedbn_keeps_normalisation_at_home() {
    let (network, clients) = imaged("batch");
    let home: Vec<usize> = network.layout().normalisation().into_iter().flatten().collect();
    assert_eq!(home.len(), 4 * 2);
    let mut play = Play::new("fedbn", TRAINING, network.clone(), clients, None);
    while !play.round().finished {}
    let own = play.own();
    let differs = |place: usize| own[0][place] != own[1][place];
    let apart: Vec<usize> = (0..own[0].len()).filter(|&place| differs(place)).collect();
    assert_eq!(apart, home);
    assert!((0..own[0].len()).any(|place| !home.contains(&place) && own[0][place] != play.start[place]));
}

/// What is at home is not among what a client sends.
#[test]
fn what_is_at_home_is_not_sent() {
    let (network, clients) = layered();
    let bytes = |name: &str| {
        let mut play = Play::new(name, TRAINING, network.clone(), clients.clone(), None);
        play.round();
        let traffic = play.federation.meter().total();
        (traffic.bytes_up, traffic.bytes_down)
    };
    let (width, last, number) = (network.layout().len() as u64, 8, 8);
    let loss = 8;
    assert_eq!(bytes("fedper").0, 3 * ((width - last) * number + loss));
    assert_eq!(bytes("lg-fedavg").0, 3 * (last * number + loss));
    // Everybody is handed a whole model once.
    assert_eq!(bytes("lg-fedavg").1, 3 * (width + last) * number);
}

/// What another kind of work kept is refused, whatever a server orders.
#[test]
fn vectors_that_another_kind_of_work_kept_are_refused() {
    use crate::federation::work::{Interpolate, TrainCorrected};
    let mut play = Play::numbers("fedavg", TRAINING, &THREE);
    let plan = Plan::steps(1, 0.1);
    let mut ask = Ask::new(Phase::Train, vec![Arc::new(vec![1.0]), Arc::new(vec![1.0])], Gather::Each);
    ask.order(Recipients::All, Train { from: Start::Model(0), plan: plan.clone(), keep: Keep::Instead });
    let stamp = Some(play.federation.ask(&ask).unwrap().stamp);
    let mut refused = |work: work::Work| {
        ask.orders[0].work = work;
        let error = play.federation.ask(&ask).unwrap_err().to_string();
        assert!(error.contains("3 vectors wanted, found 1"), "{error}");
    };
    refused(Interpolate { model: 0, stamp, share: 0.5, adaptive: true, plan: plan.clone() }.into());
    refused(TrainCorrected { model: 0, control: 1, stamp, plan }.into());
}
