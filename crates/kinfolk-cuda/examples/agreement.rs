//! Compares a device with this computer's threads, from the same state, and prints differences and times. Ends with 1 where they are
//! farther apart than may be, and says so where there is no device.
//!
//! `agreement [steps] [methods] [times]`: only some of it; `agreement DIR` is not needed: all data is made up or compiled in.

use kinfolk::aggregate::{By, Weight};
use kinfolk::compute::{Backend, Batch, Computed, Cpu, Job, Roster, Sums, Threads, threads};
use kinfolk::data::{Augment, Form};
use kinfolk::data::{Features, Targets};
use kinfolk::federation::engines::local::LocalFederation;
use kinfolk::models::{self, Choosing, Found, Model, Step, Summing};
use kinfolk::rng::Key;
use kinfolk::run::{Options, Unwatched, run};
use kinfolk::settings::Settings;
use kinfolk::training::{Amount, Course, Optimiser, Plan, Portion, Pull, Sample, Split, Terms, Then};
use kinfolk::{Client, DataShape, Experiment, Result, Shard};
use kinfolk_cuda::Cuda;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Keeps the clients that it is given.
#[derive(Default)]
struct Catch(Mutex<Option<Arc<Threads>>>);

impl Backend for Catch {
    fn admit(&self, clients: Arc<Threads>) -> Result<Box<dyn Roster>> {
        *self.0.lock().expect("nobody panics here") = Some(clients.clone());
        Cpu.admit(clients)
    }
}

/// Clients with a model on a backend.
fn on(backend: &dyn Backend, clients: &[Client], model: &Arc<dyn Model>) -> Result<Box<dyn Roster>> {
    let catch = Arc::new(Catch::default());
    let mut federation = LocalFederation::new(clients.to_vec(), threads(0)?).with_backend(catch.clone());
    federation.set_model(model.clone())?;
    let threads = catch.0.lock().expect("nobody panics here").take().expect("the clients were admitted");
    backend.admit(threads)
}

/// Made-up images or numbers: each class has its own pattern.
fn clients(sizes: &[usize], columns: usize, classes: usize, numbers: bool) -> Vec<Client> {
    use rand::RngExt;
    let make = |(index, &rows): (usize, &usize)| {
        let mut rng = Key::new(index as u64).word("agreement").rng();
        let shard = |rows: usize, rng: &mut kinfolk::rng::Rng| {
            let of: Vec<u32> = (0..rows).map(|_| rng.random_range(0..classes.max(2) as u32)).collect();
            let mut value = |place: usize| {
                let (class, column) = (of[place / columns] as usize, place % columns);
                let bright = if (column * 7 + class * 13) % 29 < 6 { 150 } else { 0 };
                (bright + rng.random_range(0..90)) as u8
            };
            let pixels: Vec<u8> = (0..rows * columns).map(&mut value).collect();
            let features = match numbers {
                false => Features::Bytes { columns, values: pixels },
                true => Features::F64 { columns, values: pixels.iter().map(|&v| f64::from(v) / 100.0 - 1.0).collect() },
            };
            let targets = match classes {
                0 => Targets::Values(of.iter().map(|&class| f64::from(class) - 0.3).collect()),
                _ => Targets::Classes(of),
            };
            Shard::new(features, targets).expect("as many targets as rows")
        };
        let train = shard(rows, &mut rng);
        let test = shard(rows / 3, &mut rng);
        Client { test, ..Client::new(format!("{index:04}"), train) }
    };
    sizes.iter().enumerate().map(make).collect()
}

fn model(kind: &str, settings: &str, shape: DataShape) -> Arc<dyn Model> {
    let kind = models::kind(kind).expect("a registered kind");
    let mut faults = Vec::new();
    let settings = Settings::check("model", kind.settings, toml::from_str(settings).expect("settings"), &mut faults);
    assert!(faults.is_empty(), "{faults:?}");
    Arc::from(kind.make(&settings, shape).expect("a model"))
}

fn images(size: [usize; 3], classes: usize) -> DataShape {
    let [channels, height, width] = size;
    let form = Form::Image { channels, height, width, augment: Augment::default() };
    DataShape { columns: channels * height * width, classes, form }
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

fn apart(a: &[f64], b: &[f64]) -> f64 {
    norm(a.iter().zip(b).map(|(a, b)| a - b)) / norm(b.iter().copied()).max(1e-300)
}

fn run_job(roster: &mut dyn Roster, models: &[&[f64]], step: Step, clients: usize) -> Result<BTreeMap<u32, Found>> {
    let jobs = [Job { place: 0, to: (0..clients as u32).collect(), step }];
    let stop = AtomicBool::new(false);
    let mut found = BTreeMap::new();
    let batch = Batch { models, jobs: &jobs, sums: None, stop: &stop };
    roster.run(&batch, &mut |_, computed| {
        if let Computed::Single(client, what) = computed {
            found.insert(client, what);
        }
    })?;
    Ok(found)
}

/// Runs one job with sums; returns the sums over all clients by slot.
fn run_sums(roster: &mut dyn Roster, models: &[&[f64]], step: Step, clients: usize) -> Result<Vec<Vec<f64>>> {
    let jobs = [Job { place: 0, to: (0..clients as u32).collect(), step }];
    let stop = AtomicBool::new(false);
    let mut totals: Vec<Vec<f64>> = Vec::new();
    let sums = Sums { summing: Summing { by: By::Choice, weight: Weight::Rows }, plausible: &|_, _| true };
    let batch = Batch { models, jobs: &jobs, sums: Some(sums), stop: &stop };
    roster.run(&batch, &mut |_, computed| {
        if let Computed::Sums(_, reduced) = computed {
            totals.resize(reduced.sums.len(), Vec::new());
            for (total, sum) in totals.iter_mut().zip(reduced.sums) {
                total.resize(total.len().max(sum.total.len()), 0.0);
                total.iter_mut().zip(&sum.total).for_each(|(total, value)| *total += value);
            }
        }
    })?;
    Ok(totals)
}

/// What was found, printed when a part is done: parts run side by side.
#[derive(Default)]
struct Report {
    failures: usize,
    text: String,
}

impl Report {
    fn say(&mut self, what: &str, found: f64, allowed: f64) {
        let bad = found.is_nan() || found > allowed;
        self.failures += usize::from(bad);
        self.line(&format!("{} {what}: {found:.2e} (allowed {allowed:.0e})", if bad { "FAIL" } else { "ok  " }));
    }

    fn line(&mut self, text: &str) {
        self.text += text;
        self.text.push('\n');
    }

    /// Does all of some things on so many threads, and prints what was found in their order.
    fn all<T: Sync>(&mut self, threads: usize, things: &[T], work: impl Fn(&mut Report, &T) -> Result<()> + Sync) {
        let next = std::sync::atomic::AtomicUsize::new(0);
        let done: Mutex<BTreeMap<usize, Report>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let place = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let Some(thing) = things.get(place) else { break };
                        let mut own = Report::default();
                        if let Err(error) = work(&mut own, thing) {
                            own.failures += 1;
                            own.line(&format!("FAIL {error}"));
                        }
                        print!("{}", own.text);
                        own.text.clear();
                        done.lock().expect("nobody panics here").insert(place, own);
                    }
                });
            }
        });
        self.failures += done.into_inner().expect("nobody panics here").values().map(|own| own.failures).sum::<usize>();
    }
}

/// The steps of a problem on both, and how far they are apart.
fn compare(
    report: &mut Report,
    cuda: &Cuda,
    name: &str,
    clients: &[Client],
    model: &Arc<dyn Model>,
    tolerance: f64,
) -> Result<()> {
    let (mut cpu, mut gpu) = (on(&Cpu, clients, model)?, on(cuda, clients, model)?);
    let starts: Vec<Vec<f64>> = (0..3)
        .map(|k| {
            let mut start = model.initialise(&mut Key::new(k).word("start").rng())?;
            start.iter_mut().for_each(|value| *value = f64::from(*value as f32));
            Ok(start)
        })
        .collect::<Result<_>>()?;
    let models: Vec<&[f64]> = starts.iter().map(Vec::as_slice).collect();
    let count = clients.len();
    let sample = |batch| Sample { on: Portion::All, batch, seed: 5 };
    let plain = Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 };
    let heavy = Optimiser::Descent { momentum: 0.9, weight_decay: 1e-3 };
    let adam = Optimiser::Adam { weight_decay: 1e-3 };
    let plan = |batch, steps, step, optimiser| Plan { sample: sample(batch), optimiser, ..Plan::steps(steps, step) };
    let mut pulls = Terms::default();
    pulls.pulls.extend([Pull { centre: 1, strength: 0.1 }, Pull { centre: 2, strength: 0.05 }]);
    let averaged = Course { fading: true, averaged: true, tolerance: 0.0 };
    let plans = [
        ("one step, batch 10", plan(Some(10), 1, 0.05, plain)),
        ("one step, all rows", plan(None, 1, 0.05, plain)),
        ("five steps, batch 10", plan(Some(10), 5, 0.02, plain)),
        ("three steps, all rows", plan(None, 3, 0.02, plain)),
        ("an epoch, batch 10", Plan { amount: Amount::Epochs(1), ..plan(Some(10), 1, 0.02, plain) }),
        ("momentum and decay", plan(Some(10), 4, 0.02, heavy)),
        ("adam", plan(Some(10), 3, 0.001, adam)),
        ("pulls", Plan { terms: pulls, ..plan(Some(10), 4, 0.02, heavy) }),
        ("fading, averaged", Plan { course: averaged, ..plan(Some(10), 4, 0.02, plain) }),
        (
            "a fold",
            Plan {
                sample: Sample { on: Portion::Others { index: 0, of: 3 }, batch: Some(10), seed: 1 },
                ..Plan::steps(3, 0.02)
            },
        ),
        ("batch 130", plan(Some(130), 2, 0.02, heavy)),
    ];
    for (what, plan) in &plans {
        let step =
            || Step::Choose(Choosing { among: &[0], on: Portion::All, then: Cow::Owned(Then::Train(plan.clone())) });
        let wanted = run_job(&mut *cpu, &models, step(), count)?;
        let found = run_job(&mut *gpu, &models, step(), count)?;
        let again = run_job(&mut *gpu, &models, step(), count)?;
        let (mut worst, mut worst_move, mut worst_loss) = (0.0f64, 0.0f64, 0.0f64);
        for (client, wanted) in &wanted {
            let (Found::Choice(a, Some(wanted)), Some(Found::Choice(b, Some(found)))) = (wanted, found.get(client))
            else {
                report.line(&format!("FAIL {name}: {what}: client {client} is missing"));
                report.failures += 1;
                continue;
            };
            worst = worst.max(apart(found, wanted));
            if apart(found, wanted).is_nan() {
                worst = f64::INFINITY;
            }
            let moved = norm(wanted.iter().zip(&starts[0]).map(|(a, b)| a - b)).max(1e-30);
            worst_move = worst_move.max(norm(wanted.iter().zip(found).map(|(a, b)| a - b)) / moved);
            worst_loss = worst_loss.max((a.loss - b.loss).abs() / a.loss.abs().max(1e-3));
        }
        report.say(&format!("{name}: {what}: parameters"), worst, tolerance);
        report.line(&format!("       of the move {worst_move:.2e}, loss {worst_loss:.2e}"));
        report.say(&format!("{name}: {what}: loss"), worst_loss, 1e-4);
        // Bits, and with the losses of several choices these are the same in sums.
        let same = format!("{again:?}") == format!("{found:?}");
        report.say(&format!("{name}: {what}: the same bits again"), f64::from(u8::from(!same)), 0.0);
    }
    let step = |then| Step::Choose(Choosing { among: &[0, 1, 2], on: Portion::All, then: Cow::Owned(then) });
    let (wanted, found) = (
        run_job(&mut *cpu, &models, step(Then::Nothing), count)?,
        run_job(&mut *gpu, &models, step(Then::Nothing), count)?,
    );
    let losses = Step::Losses { of: &[0, 1, 2], on: Portion::Part { index: 1, of: 2 } };
    let (wanted_losses, found_losses) =
        (run_job(&mut *cpu, &models, losses.clone(), count)?, run_job(&mut *gpu, &models, losses, count)?);
    let (mut wrong, mut far) = (0, 0.0f64);
    for client in wanted.keys() {
        if let (Found::Choice(a, _), Some(Found::Choice(b, _))) = (&wanted[client], found.get(client)) {
            wrong += usize::from(a.position != b.position);
        }
        if let (Found::Losses(a), Some(Found::Losses(b))) = (&wanted_losses[client], found_losses.get(client)) {
            far = far.max(apart(b, a));
        } else {
            far = f64::INFINITY;
        }
    }
    report.say(&format!("{name}: choices"), wrong as f64, 0.0);
    report.say(&format!("{name}: losses"), far, 1e-5);
    let gradient = || step(Then::Gradient(Sample { on: Portion::All, batch: Some(10), seed: 3 }));
    let (wanted, found) =
        (run_job(&mut *cpu, &models, gradient(), count)?, run_job(&mut *gpu, &models, gradient(), count)?);
    let mut far = 0.0f64;
    for client in wanted.keys() {
        match (&wanted[client], found.get(client)) {
            (Found::Choice(_, Some(a)), Some(Found::Choice(_, Some(b)))) => far = far.max(apart(b, a)),
            _ => far = f64::INFINITY,
        }
    }
    report.say(&format!("{name}: gradients"), far, 1e-4);
    let score = || Step::Score { among: &[0, 1, 2], assign_on: Split::Train, compare: true };
    let (wanted, found) = (run_job(&mut *cpu, &models, score(), count)?, run_job(&mut *gpu, &models, score(), count)?);
    let (mut far, mut hits) = (0.0f64, 0i64);
    for client in wanted.keys() {
        match (&wanted[client], found.get(client)) {
            (Found::Score(p, a, s), Some(Found::Score(q, b, t))) if p == q && s.rows == t.rows => {
                far = far.max(apart(b, a)).max((s.loss - t.loss).abs() / s.loss.abs().max(1e-3));
                hits += (i64::from(s.hits.unwrap_or(0)) - i64::from(t.hits.unwrap_or(0))).abs();
            }
            _ => far = f64::INFINITY,
        }
    }
    report.say(&format!("{name}: scores"), far, 1e-5);
    report.say(&format!("{name}: hits that differ"), hits as f64, 2.0);
    let train = || step(Then::Train(plan(Some(10), 3, 0.02, plain)));
    let (wanted, found) =
        (run_sums(&mut *cpu, &models, train(), count)?, run_sums(&mut *gpu, &models, train(), count)?);
    let far =
        wanted.iter().zip(&found).map(|(a, b)| if a.len() == b.len() { apart(b, a) } else { 9.0 }).fold(0.0, f64::max);
    report.say(&format!("{name}: sums"), far, tolerance);
    for note in gpu.notes() {
        report.line(&format!("       note: {note}"));
    }
    Ok(())
}

/// A name, the model, rows of every client, whether rows are numbers, and how far parameters may be apart.
type Case = (&'static str, Arc<dyn Model>, Vec<usize>, bool, f64);

/// Two networks and few rows: for tools that make everything slow.
fn small(report: &mut Report, cuda: &Cuda) -> Result<()> {
    let network = model("cnn", "filters = [8, 12]\nhidden = [9]", images([1, 8, 8], 3));
    compare(report, cuda, "cnn 8-12-9", &clients(&[23, 5], 64, 3, false), &network, 1e-3)?;
    let dense = model("mlp", "hidden = [8]", images([1, 4, 4], 3));
    compare(report, cuda, "mlp 16-8-3", &clients(&[12, 12], 16, 3, false), &dense, 1e-5)?;
    print!("{}", std::mem::take(&mut report.text));
    Ok(())
}

fn steps(report: &mut Report, cuda: &Cuda) {
    let sizes = || vec![23, 40, 1, 131, 64, 57];
    let case = |name, kind: &str, settings: &str, shape: DataShape, numbers, tolerance| -> Case {
        (name, model(kind, settings, shape), sizes(), numbers, tolerance)
    };
    let digits = images([1, 28, 28], 10);
    let single = "precision = \"f32\"";
    let odd = "filters = [3, 6]\nkernel = 3\npool = 3\nhidden = [11]";
    let means = "filters = [4, 8]\nstride = 2\nkernel = 3\npooling = \"mean\"\nhidden = [9]";
    let same = "filters = [8, 12]\nkernel = 3\nhidden = [16]";
    let mut cases = vec![
        case("cnn 8-16-32, valid", "cnn", "filters = [8, 16]\npadding = \"valid\"\nhidden = [32]", digits, false, 1e-3),
        case(
            "cnn 6-16-120-84",
            "cnn",
            "filters = [6, 16]\npadding = \"valid\"\nhidden = [120, 84]",
            digits,
            false,
            1e-3,
        ),
        case("cnn 8-12-16, same, three channels", "cnn", same, images([3, 12, 12], 5), false, 1e-3),
        case("cnn 3-6-11, pools of 3", "cnn", odd, images([3, 11, 9], 5), false, 1e-3),
        case("cnn 4-8-9, stride 2, means", "cnn", means, images([1, 20, 20], 3), false, 1e-3),
        case("mlp 784-200-10", "mlp", "hidden = [200]", digits, false, 1e-5),
        case("mlp 50-20-12-4", "mlp", "hidden = [20, 12]", DataShape::numbers(50, 4), true, 1e-5),
        case("mlp 13-7-1, numbers", "mlp", "hidden = [7]", DataShape::numbers(13, 0), true, 1e-5),
        case("softmax", "softmax", single, images([1, 8, 8], 10), false, 1e-5),
        case("logistic", "logistic", single, DataShape::numbers(9, 2), true, 1e-5),
        case("linear", "linear", single, DataShape::numbers(10, 0), true, 1e-5),
    ];
    let fashion = model("cnn", "filters = [32, 64]\npadding = \"valid\"\nhidden = [512]", digits);
    cases.insert(0, ("cnn 32-64-512", fashion, vec![40, 25, 12], false, 1e-3));
    report.all(6, &cases, |report, (name, model, sizes, numbers, tolerance)| {
        // Every client has as many columns as the model reads.
        let classes = if model.classes() == 0 { 0 } else { model.classes() };
        compare(report, cuda, name, &clients(sizes, model.columns(), classes, *numbers), model, *tolerance)
    });
}

/// Sums of many steps on all rows of clients with as many rows each, in the space of the rows.
fn whole(report: &mut Report, cuda: &Cuda) -> Result<()> {
    for (hidden, rows, count) in [(200, 50, 40), (200, 160, 6), (28, 9, 5)] {
        let clients = clients(&vec![rows; count], 784, 10, false);
        let model = model("mlp", &format!("hidden = [{hidden}]"), images([1, 28, 28], 10));
        let (mut cpu, mut gpu) = (on(&Cpu, &clients, &model)?, on(cuda, &clients, &model)?);
        let starts: Vec<Vec<f64>> =
            (0..3).map(|k| model.initialise(&mut Key::new(k).word("start").rng())).collect::<Result<_>>()?;
        let models: Vec<&[f64]> = starts.iter().map(Vec::as_slice).collect();
        for (what, among) in [("a choice of three", &[0usize, 1, 2][..]), ("one model", &[1][..])] {
            let then = || Cow::Owned(Then::Train(Plan::steps(10, 0.1)));
            let step = || Step::Choose(Choosing { among, on: Portion::All, then: then() });
            let wanted = run_sums(&mut *cpu, &models, step(), count)?;
            let found = run_sums(&mut *gpu, &models, step(), count)?;
            let again = run_sums(&mut *gpu, &models, step(), count)?;
            let far = |(a, b): (&Vec<f64>, &Vec<f64>)| if a.len() == b.len() { apart(b, a) } else { 9.0 };
            let far = wanted.iter().zip(&found).map(far).fold(0.0, f64::max);
            report.say(&format!("all rows, {count} x {rows}, {hidden} hidden units, {what}: sums"), far, 1e-5);
            report.say("the same bits again", f64::from(u8::from(found != again)), 0.0);
        }
    }
    Ok(())
}

/// Small runs of methods: the same metric and clusters.
fn methods(report: &mut Report, cuda: &Arc<Cuda>) {
    let dense = "[model]\nkind = \"mlp\"\nhidden = [16]\n";
    let cnn = "[model]\nkind = \"cnn\"\nfilters = [4]\nkernel = 3\nhidden = [12]\n";
    let names = [
        "fedavg",
        "local",
        "fedprox",
        "fedopt",
        "scaffold",
        "ditto",
        "mr-mtl",
        "apfl",
        "pfedme",
        "per-fedavg",
        "fedper",
        "fedrep",
        "fedbabu",
        "lg-fedavg",
        "fedamp",
        "fedfomo",
        "ifca",
        "fine-tune",
        "sr-fca",
        "cfl",
        "fedsoft",
        "fesem",
        "fedgroup",
        "stocfl",
        "cfl-gp",
        "fedclust",
        "pacfl",
        "fedem-soft",
        "fedrc",
        "oracle",
        "feddrift",
        "odcl",
        "l2gd",
        "auto",
    ];
    let all: Vec<_> =
        [("mlp", dense), ("cnn", cnn)].into_iter().flat_map(|model| names.map(|name| (model, name))).collect();
    report.all(6, &all, |report, &((kind, model), name)| {
        {
            let clusters = if ["ifca", "fedsoft", "fesem", "fedgroup", "cfl-gp", "fedem-soft", "fedrc", "odcl"].contains(&name) { "clusters = 2\n" } else { "" };
            // What a method has no use for, it does not know.
            let usual = ["rounds = 3", "local_steps = 5", "batch = 10", "step = 0.1"];
            let part = |keys: &[&str]| {
                let text = format!(
                    "evaluate_every = 2\nsave_models = \"none\"\n[data]\nsource = \"digits\"\nclients = 8\nsamples = 40\n\
                     test_samples = 40\ntrue_clusters = 2\n{model}[[method]]\nname = \"{name}\"\n{clusters}{}\n",
                    keys.join("\n")
                );
                Experiment::parse("experiment", &text, &[])
            };
            let tries = [&usual[..], &usual[1..], &usual[3..], &[]];
            let Some(experiment) = tries.iter().find_map(|keys| part(keys).ok()) else {
                let why = part(&usual).err().map_or(String::new(), |error| error.to_string().replace('\n', " "));
                report.line(&format!("       {kind} {name}: left out: {why}"));
                return Ok(());
            };
            let of = |backend: Arc<dyn Backend>| run(&experiment, &Options { backend, threads: 2, ..Options::default() }, &mut Unwatched);
            let begin = Instant::now();
            let found = of(cuda.clone());
            let seconds = begin.elapsed().as_secs_f64();
            match (of(Arc::new(Cpu)), found) {
                (Ok(wanted), Ok(found)) => {
                    let (wanted, found) = (&wanted.summary.methods[0].repeats[0], &found.summary.methods[0].repeats[0]);
                    let mean = |repeat: &kinfolk::record::RepeatSummary| repeat.metric.as_ref().map_or(f64::NAN, |metric| metric.mean);
                    let (a, b) = (mean(wanted), mean(found));
                    let far = if wanted.clusters == found.clusters && wanted.status == found.status { (a - b).abs() } else { 9.0 };
                    let why = found.reason.clone().unwrap_or_default();
                    report.say(&format!("{kind} {name}: {b:.4} {} {:?} in {seconds:.2} s {why}", found.status, found.clusters), far, 0.02);
                    if far > 0.02 {
                        report.line(&format!("       wanted {a:.4} {} {:?}", wanted.status, wanted.clusters));
                    }
                    if kind == "mlp" {
                        for note in found.notes.iter().filter(|note| note.contains("device")) {
                            report.line(&format!("       {note}"));
                        }
                    }
                }
                (wanted, found) => {
                    let text = |it: Result<kinfolk::Record>| it.err().map_or("fine".into(), |error| error.to_string());
                    let (wanted, found) = (text(wanted), text(found));
                    let bad = (wanted == "fine") != (found == "fine");
                    report.failures += usize::from(bad);
                    report.line(&format!("{} {kind} {name}: {found}; on the CPU {wanted}", if bad { "FAIL" } else { "ok  " }));
                }
            }
        }
        Ok(())
    });
}

fn times(cuda: &Cuda) -> Result<()> {
    let plan = |batch, epochs| Plan {
        sample: Sample { on: Portion::All, batch, seed: 5 },
        amount: Amount::Epochs(epochs),
        ..Plan::steps(1, 0.005)
    };
    let even = [2625usize; 20];
    let uneven: Vec<usize> = (0..20).map(|k| 260 * (k % 5 * 5 + 1) / (1 + k / 15)).collect();
    let fashion = model("cnn", "filters = [32, 64]\npadding = \"valid\"\nhidden = [512]", images([1, 28, 28], 10));
    let niid = model("cnn", "filters = [6, 16]\npadding = \"valid\"\nhidden = [120, 84]", images([1, 28, 28], 10));
    let mlp = model("mlp", "hidden = [200, 200]", images([1, 28, 28], 10));
    let one = [2625usize];
    let cases = [
        ("fashion cnn, 20 even clients, batch 10", &even[..], &fashion, plan(Some(10), 1)),
        ("fashion cnn, 20 uneven clients, batch 10", &uneven[..], &fashion, plan(Some(10), 1)),
        ("fashion cnn, 1 client, batch 10", &one[..], &fashion, plan(Some(10), 1)),
        ("niid cnn, 10 clients, batch 64", &even[..10], &niid, plan(Some(64), 1)),
        ("mlp 784-200-200-10, 20 clients, batch 10", &even[..], &mlp, plan(Some(10), 1)),
    ];
    for (name, sizes, model, plan) in cases {
        let clients = clients(sizes, 784, 10, false);
        let begin = Instant::now();
        let mut gpu = on(cuda, &clients, model)?;
        let admitted = begin.elapsed().as_secs_f64();
        let start = model.initialise(&mut Key::new(1).rng())?;
        let step =
            || Step::Choose(Choosing { among: &[0], on: Portion::All, then: Cow::Owned(Then::Train(plan.clone())) });
        let steps = sizes.iter().max().copied().unwrap_or(0).div_ceil(plan.sample.batch.unwrap_or(1) as usize);
        for turn in 0..3 {
            let begin = Instant::now();
            run_sums(&mut *gpu, &[&start], step(), sizes.len())?;
            let seconds = begin.elapsed().as_secs_f64();
            println!(
                "time {name}: round {turn}: {:.1} ms, {:.1} us a step; admitted in {admitted:.2} s",
                1e3 * seconds,
                1e6 * seconds / steps as f64
            );
        }
        let begin = Instant::now();
        run_job(
            &mut *gpu,
            &[&start],
            Step::Score { among: &[0], assign_on: Split::Train, compare: false },
            sizes.len(),
        )?;
        run_job(
            &mut *gpu,
            &[&start],
            Step::Score { among: &[0], assign_on: Split::Train, compare: false },
            sizes.len(),
        )?;
        println!("time {name}: two evaluations: {:.1} ms", 1e3 * begin.elapsed().as_secs_f64());
        let few = Plan { amount: Amount::Steps(40), ..plan.clone() };
        cuda.measure(true);
        let step = Step::Choose(Choosing { among: &[0], on: Portion::All, then: Cow::Owned(Then::Train(few)) });
        run_sums(&mut *gpu, &[&start], step, sizes.len())?;
        for (kernel, micros, count) in cuda.measure(false) {
            println!("       {kernel}: {:.1} us x {count}", micros / count as f64);
        }
    }
    for (count, rows) in [(4800usize, 50usize), (1200, 200)] {
        let clients = clients(&vec![rows; count], 784, 10, false);
        let model = model("mlp", "hidden = [200]", images([1, 28, 28], 10));
        let mut gpu = on(cuda, &clients, &model)?;
        let starts: Vec<Vec<f64>> = (0..4).map(|k| model.initialise(&mut Key::new(k).rng())).collect::<Result<_>>()?;
        let models: Vec<&[f64]> = starts.iter().map(Vec::as_slice).collect();
        let plan = Plan::steps(10, 0.1);
        for turn in 0..3 {
            let step = Step::Choose(Choosing {
                among: &[0, 1, 2, 3],
                on: Portion::All,
                then: Cow::Owned(Then::Train(plan.clone())),
            });
            let begin = Instant::now();
            run_sums(&mut *gpu, &models, step, count)?;
            println!(
                "time rotated mnist {count} x {rows}: round {turn}: {:.1} ms",
                1e3 * begin.elapsed().as_secs_f64()
            );
        }
    }
    Ok(())
}

fn main() {
    let parts: Vec<String> = std::env::args().skip(1).collect();
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    let tf32 = parts.iter().any(|part| part == "tf32");
    let cuda = match Cuda::open(tf32, |text| println!("       {text}")) {
        Ok(cuda) => Arc::new(cuda),
        Err(error) => {
            println!("no device: {error}\nskipped: steps, methods and times on a device");
            return;
        }
    };
    println!("device: {}", cuda.name());
    let mut report = Report::default();
    let go = |part: &str, report: &mut Report| {
        let begin = Instant::now();
        let done = match part {
            "steps" => {
                steps(report, &cuda);
                whole(report, &cuda).inspect(|()| print!("{}", std::mem::take(&mut report.text)))
            }
            "small" => small(report, &cuda),
            "methods" => {
                methods(report, &cuda);
                Ok(())
            }
            _ => times(&cuda),
        };
        if let Err(error) = done {
            println!("FAIL {part}: {error}");
            report.failures += 1;
        }
        println!("{part}: {:.1} s", begin.elapsed().as_secs_f64());
    };
    for part in ["steps", "times", "methods", "small"] {
        if wants(part) && (part != "small" || !parts.is_empty()) {
            go(part, &mut report);
        }
    }
    println!("{} comparisons failed", report.failures);
    std::process::exit(i32::from(report.failures > 0));
}
