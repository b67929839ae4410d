//! A server that wants rows: what a machine refuses, for every kind of work and every setting that a message carries.

use kinfolk::aggregate::Weight;
use kinfolk::data::own::{OwnClient, OwnScore, Point};
use kinfolk::data::schema::{Coding, FeaturesDescription, Schema, Summary};
use kinfolk::data::{Client, DataShape, Features, Form, Shard, Targets};
use kinfolk::federation::Phase;
use kinfolk::federation::client::node::{Node, Rows, TableRows};
use kinfolk::federation::client::site::Site;
use kinfolk::federation::wire::{
    self, DataOrder, ModelOrder, Request, Roll, RunMark, SiteMessage, SiteOrder, SiteReply, roll_of,
};
use kinfolk::federation::work::{Acceleration, Answer, Evaluated, Reply};
use kinfolk::federation::work::{Advance, Respond, ResponseParts, Run};
use kinfolk::federation::work::{
    Choose, Curvature, Evaluate, Gradient, Keep, Losses, Minimise, Start, Subject, Tally, Train, Validate, Work,
};
use kinfolk::federation::work::{FitMixture, Parts, StepMixture};
use kinfolk::mixture::step::{Rule, Step};
use kinfolk::mixture::{Covariance, Detail, Family, Fitting, Shape};
use kinfolk::models::Score;
use kinfolk::models::{self, Blueprint, Packed};
use kinfolk::settings::Settings;
use kinfolk::training::{Amount, Course, Optimiser, Plan, Portion, Sample, Terms, Then};
use kinfolk::training::{Pull, Scale};
use kinfolk::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| text.to_string()).collect()
}

/// Pupils of three schools; the third has but four of them, and every pupil has a name and an income.
fn pupils(spoiled: &str) -> (TempDir, TableRows) {
    let mut text = "school,name,sex,income,hours,score\n".to_string();
    for row in 0..124 {
        let school = if row < 60 {
            "a"
        } else if row < 120 {
            "b"
        } else {
            "c"
        };
        let sex = if row % 2 == 0 { "f" } else { "m" };
        let hours = if row == 7 { spoiled.to_string() } else { format!("{}.5", row % 13) };
        text += &format!("{school},pupil-{row},{sex},{},{hours},{}.25\n", 1000 + row, row % 17);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pupils.csv");
    std::fs::write(&path, text).unwrap();
    let rows = TableRows {
        path,
        client: "school".into(),
        columns: texts(&["sex", "hours", "score"]),
        words: texts(&["sex"]),
        test_fraction: 0.2,
        split_seed: 0,
    };
    (folder, rows)
}

const USUAL: &str = "path = \"\"\nclient = \"school\"\ntarget = \"score\"\n";

fn hello(settings: &str, seed: u64) -> SiteMessage {
    SiteMessage {
        data: DataOrder { source: "table".into(), settings: settings.into(), seed },
        run: RunMark::new("test"),
        label: String::new(),
        schema: None,
        model: None,
        request: Request::Hello { moments: true },
    }
}

fn send(site: &mut Site, message: &SiteMessage) -> Result<SiteReply> {
    let (reply, _) = site.answer(&wire::encode(message).unwrap(), b"")?;
    wire::decode(&reply)
}

fn roll(node: Node, settings: &str, seed: u64) -> Result<Roll> {
    match send(&mut Site::new(node, 1).unwrap(), &hello(settings, seed))? {
        SiteReply::Roll(roll) => Ok(roll),
        other => panic!("{other:?}"),
    }
}

/// What a server hears that asks for this data.
fn refused(rows: &TableRows, settings: &str) -> String {
    roll(Node::new(Rows::Table(rows.clone())), settings, 0).unwrap_err().told()
}

#[test]
fn a_server_cannot_name_another_client_column_or_other_columns() {
    let (_folder, rows) = pupils("1.5");
    let said = refused(&rows, &USUAL.replace("\"school\"", "\"name\""));
    assert!(said.starts_with("data.client: got `name`, this machine's clients are named by `school`"), "{said}");
    let said = refused(&rows, &USUAL.replace("\"score\"", "\"income\""));
    assert!(said.starts_with("data.target: got `income`, this machine lets be read sex, hours, score"), "{said}");
    for (key, wanted) in [("group", "name"), ("truth", "income"), ("group", "hours")] {
        let said = refused(&rows, &format!("{USUAL}{key} = \"{wanted}\"\n"));
        assert!(said.starts_with(&format!("data.{key}: got `{wanted}`")), "{said}");
    }
    // Whether a column is there is not told either.
    let roll = roll(Node::new(Rows::Table(rows)), &format!("{USUAL}drop = [\"income\", \"nothing\"]\n"), 0).unwrap();
    let FeaturesDescription::Named(columns) = &roll.members[0].description.features else { panic!("{roll:?}") };
    assert_eq!(columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["sex", "hours"]);
}

#[test]
fn a_server_cannot_have_small_clients_and_other_splits() {
    let (_folder, rows) = pupils("1.5");
    let node = Node::new(Rows::Table(rows.clone()));
    let first = roll(node.clone(), &format!("{USUAL}min_rows = 1\nsmall = \"error\"\n"), 0).unwrap();
    assert_eq!(first.members.iter().map(|member| member.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(first.left_out, 1, "the third school is told as a number");
    // Sums over many splits of the same rows would tell every row.
    for seed in 1..20 {
        assert_eq!(roll(node.clone(), USUAL, seed).unwrap(), first);
    }
    let said = refused(&rows, &format!("{USUAL}test_fraction = 0.02\n"));
    assert!(said.starts_with("data.test_fraction: got 0.02, this machine keeps 0.2"), "{said}");
    assert!(refused(&rows, &format!("{USUAL}outliers = 0.5\n")).starts_with("data.outliers"));
    let said = roll(node.with_minimum_rows(100), USUAL, 0).unwrap_err().told();
    assert!(said.starts_with("none of the 3 clients here has 100 training rows"), "{said}");
}

#[test]
fn who_has_few_rows_stands_in_the_machines_own_log() {
    let (_folder, rows) = pupils("1.5");
    let mut site = Site::new(Node::new(Rows::Table(rows.clone())), 1).unwrap();
    send(&mut site, &hello(USUAL, 0)).unwrap();
    assert_eq!(site.take_log(), ["left out, with fewer than 10 training rows: c (3)"]);
    // Twelve rows of each school are held out.
    let mut site = Site::new(Node::new(Rows::Table(rows)).with_minimum_rows(13), 1).unwrap();
    send(&mut site, &hello(USUAL, 0)).unwrap();
    assert_eq!(site.take_log()[1], "not scored, with fewer than 13 held-out rows: a (12), b (12)");
}

#[test]
fn one_cell_that_is_no_number_does_not_send_the_column() {
    let (_folder, rows) = pupils("n/a?");
    let said = refused(&rows, USUAL);
    assert!(!said.contains("n/a?") && !said.contains("12.5"), "{said}");
    // Nor does a server that calls the numbers words.
    let as_words = format!("{USUAL}words = [\"hours\"]\n");
    let said = refused(&rows, &as_words);
    assert!(said.starts_with("column `hours`: 1 of 124 rows are no numbers, and it is not among node.words"), "{said}");
    assert!(!said.contains("n/a?") && !said.contains("12.5"), "{said}");
    // A machine may say that they leave.
    let declared = TableRows { words: texts(&["sex", "hours"]), ..rows };
    let roll = roll(Node::new(Rows::Table(declared)), &as_words, 0).unwrap();
    let FeaturesDescription::Named(columns) = &roll.members[0].description.features else { panic!("{roll:?}") };
    assert!(matches!(&columns[1].summary, Summary::Words { counts, .. } if counts.len() > 5), "{columns:?}");
}

#[test]
fn the_smallest_and_the_largest_cell_are_not_told() {
    let (_folder, rows) = pupils("1.5");
    let told = |minimum: usize| {
        let node = Node::new(Rows::Table(rows.clone())).with_minimum_rows(minimum);
        let FeaturesDescription::Named(columns) = roll(node, USUAL, 0).unwrap().members.remove(0).description.features
        else {
            panic!("no table")
        };
        match columns[1].summary {
            Summary::Numbers { moments, .. } => moments,
            ref other => panic!("{other:?}"),
        }
    };
    let (open, guarded) = (told(1), told(10));
    assert_eq!((open.min, open.max), (0.5, 12.5));
    assert!(guarded.min < open.min && guarded.max > open.max, "{guarded:?}");
    assert_eq!((guarded.mean, guarded.deviation, guarded.count), (open.mean, open.deviation, open.count));
}

#[test]
fn values_of_the_target_leave_as_classes_only_where_they_are_words() {
    let (_folder, rows) = pupils("1.5");
    let said = refused(&rows, &format!("{USUAL}task = \"classification\"\n"));
    assert!(said.starts_with("column `score`: its cells would leave as names of classes"), "{said}");
    let roll = roll(Node::new(Rows::Table(rows)), &USUAL.replace("\"score\"", "\"sex\""), 0).unwrap();
    assert_eq!(roll.shape.classes, 2, "a target among the words is one of classes");
}

#[test]
fn neither_paths_nor_cells_stand_in_what_a_server_hears() {
    let (folder, rows) = pupils("");
    let full = roll(Node::new(Rows::Table(rows.clone())), USUAL, 0).unwrap_err();
    assert!(full.to_string().contains("pupils.csv row 9: column `hours` has no value"), "{full}");
    assert_eq!(full.told(), "an error of kind data; the machine's own log says more");
    let missing = TableRows { path: folder.path().join("secret.csv"), ..rows };
    assert_eq!(refused(&missing, USUAL), "an error of kind io; the machine's own log says more");
}

/// A machine with one client, whose rows are numbers.
struct Machine {
    site: Site,
    model: ModelOrder,
    width: usize,
    /// Model 0 of every ask.
    params: Vec<f64>,
}

const ROWS: usize = 60;
const COLUMNS: usize = 3;

fn row(row: usize) -> [f64; COLUMNS] {
    [1.0 + row as f64, (row * row % 7) as f64, (row % 5) as f64 - 2.0]
}

impl Machine {
    fn new(kind: &str, model: &str, minimum_rows: usize) -> Self {
        let values = (0..ROWS).flat_map(row).collect();
        let targets = Targets::Values((0..ROWS).map(|row| 0.5 + row as f64).collect());
        let train = Shard::new(Features::F64 { columns: COLUMNS, values }, targets).unwrap();
        let client = Client { id: "only".into(), test: train.part(0, 3), train, group: None, truth: None };
        let shape = DataShape::numbers(COLUMNS, 0);
        let kind = models::kind(kind).unwrap();
        let settings = Settings::check("model", kind.settings, toml::from_str(model).unwrap(), &mut Vec::new());
        let blueprint = Blueprint { kind, settings, shape };
        let width = blueprint.build().unwrap().layout().len();
        let node = Node::new(Rows::Given(vec![client], shape)).with_minimum_rows(minimum_rows);
        let model = ModelOrder::of(&blueprint).unwrap();
        Self { site: Site::new(node, 1).unwrap(), model, width, params: vec![0.0; width] }
    }

    fn linear(minimum_rows: usize) -> Self {
        Self::new("linear", "intercept = false", minimum_rows)
    }

    fn message(&self, orders: Vec<SiteOrder>) -> SiteMessage {
        SiteMessage {
            data: DataOrder { source: "linear".into(), settings: String::new(), seed: 0 },
            run: RunMark { name: "test".into(), session: 1, checkpoint: u64::MAX },
            label: "ifca".into(),
            schema: None,
            model: Some(self.model.clone()),
            request: Request::Work {
                roll: roll_of(["only"].into_iter()),
                stamp: 1,
                phase: Phase::Train,
                models: vec![(0, Arc::new(Packed::F64(self.params.clone())))],
                orders,
                hides: None,
            },
        }
    }

    /// What the client answers, or what the server hears instead.
    fn ask(&mut self, work: Work) -> std::result::Result<Reply, String> {
        let message = self.message(vec![SiteOrder { index: 0, to: None, work, sum: None, seal: None }]);
        match send(&mut self.site, &message).map_err(|error| error.told())? {
            SiteReply::Replies(mut replies, _) => replies.remove(0).reply.map(|reply| reply.unpack()),
            other => panic!("{other:?}"),
        }
    }
}

fn sample(on: Portion, batch: Option<u32>) -> Sample {
    Sample { on, batch, seed: 3 }
}

fn plan(sample: Sample, amount: Amount) -> Plan {
    let optimiser = Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 };
    Plan { sample, amount, step: 0.5, optimiser, terms: Terms::default(), course: Course::PLAIN }
}

fn train(sample: Sample) -> Work {
    Work::Train(Train { from: Start::Model(0), plan: plan(sample, Amount::Steps(1)), keep: Keep::No })
}

fn choose(on: Portion, then: Then) -> Work {
    Work::Choose(Choose { among: vec![0], on, then })
}

const SCALE: Scale = Scale { factor: 1.0, by: Weight::Uniform };

fn respond(on: Portion, send: ResponseParts) -> Work {
    let pull = Pull { centre: 0, strength: 1.0 };
    Work::Respond(Respond { pull, on, send, keep: false, scale: SCALE })
}

fn advance(sample: Sample, acceleration: Option<Acceleration>) -> Work {
    let vectors = if acceleration.is_some() { 4 } else { 1 };
    let mut shares = vec![0.0; vectors];
    shares[0] = 1.0;
    Work::Advance(Advance {
        from: Start::Model(0),
        vectors: vectors as u32,
        blend: None,
        run: Some(Run { steps: 1, step: 0.5, sample, acceleration }),
        renewal: None,
        measured: None,
        send: vec![shares],
        scale: SCALE,
    })
}

/// Every kind of work, as somebody asks for it who wants single rows.
fn greedy() -> Vec<(&'static str, Work)> {
    let few = Portion::Part { index: 0, of: 12 };
    let fold = Portion::Fold { index: 0, of: 12 };
    let others = Portion::Others { index: 0, of: ROWS as u32 };
    let one = sample(Portion::All, Some(1));
    let pace = Acceleration { vectors: [0, 1, 2, 3], a: [0.3, 0.2], b: [0.9, 0.1], chance: 0.5 };
    vec![
        ("a part", Work::Losses(Losses { of: vec![0], on: few })),
        ("a fold", Work::Losses(Losses { of: vec![0], on: fold })),
        ("all but one", Work::Losses(Losses { of: vec![0], on: others })),
        ("gradient of a part", Work::Gradient(Gradient { of: 0, sample: sample(few, None) })),
        ("gradient of a fold", Work::Gradient(Gradient { of: 0, sample: sample(fold, None) })),
        ("gradient of all but one", Work::Gradient(Gradient { of: 0, sample: sample(others, None) })),
        ("gradient of one row", Work::Gradient(Gradient { of: 0, sample: one.clone() })),
        ("training on one row", train(one.clone())),
        ("training on a part", train(sample(few, None))),
        ("a choice by a part", choose(few, Then::Nothing)),
        ("a choice, then a part", choose(Portion::All, Then::Gradient(sample(few, None)))),
        ("a choice, then one row", choose(Portion::All, Then::Gradient(one.clone()))),
        ("a choice, then training", choose(Portion::All, Then::Train(plan(one.clone(), Amount::Epochs(1))))),
        ("a move by one row", advance(one.clone(), None)),
        ("accelerated moves by one row", advance(one.clone(), Some(pace))),
        ("a response of a part", respond(few, ResponseParts::Response)),
        ("a quadratic of a part", respond(few, ResponseParts::Quadratic)),
        ("a quadratic of all but one", respond(others, ResponseParts::Quadratic)),
        (
            "validation on one row",
            Work::Validate(Validate {
                trials: vec![Pull { centre: 0, strength: 1.0 }],
                fold: 0,
                of: ROWS as u32,
                scale: SCALE,
            }),
        ),
        ("a fold of four billion", Work::Losses(Losses { of: vec![0], on: Portion::Fold { index: 0, of: u32::MAX } })),
    ]
}

/// Between two messages of a run the server says that the model is another one.
#[test]
fn what_a_client_kept_of_a_smaller_model_is_refused() {
    let (mut machine, wide) = (Machine::linear(1), Machine::new("mlp", "hidden = [4]", 1));
    let plan = plan(sample(Portion::All, None), Amount::Steps(1));
    let keep = Work::Train(Train { from: Start::Model(0), plan, keep: Keep::Instead });
    let order = |work| vec![SiteOrder { index: 0, to: None, work, sum: None, seal: None }];
    let kept = machine.site.answer(&wire::encode(&machine.message(order(keep))).unwrap(), &[]).unwrap().1;
    let score =
        Evaluate { with: Subject::Own { stamp: 1 }, assign_on: kinfolk::training::Split::Train, compare: false };
    let mut own = machine.message(order(Work::Evaluate(score)));
    own.model = Some(wide.model);
    let reply = machine.site.answer(&wire::encode(&own).unwrap(), &kept).unwrap().0;
    match wire::decode(&reply).unwrap() {
        SiteReply::Replies(replies, _) => assert!(replies[0].reply.is_err(), "{replies:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_kind_of_work_shows_few_rows() {
    let mut machine = Machine::linear(10);
    for (what, work) in greedy() {
        let said = machine.ask(work).expect_err(what);
        assert!(said.contains("this machine wants at least 10"), "{what}: {said}");
    }
    // It is the few rows that are refused, not the work.
    for (what, work) in [
        ("losses", Work::Losses(Losses { of: vec![0], on: Portion::Fold { index: 0, of: 5 } })),
        ("gradient", Work::Gradient(Gradient { of: 0, sample: sample(Portion::All, Some(16)) })),
        ("training", train(sample(Portion::All, Some(16)))),
        ("response", respond(Portion::Others { index: 1, of: 5 }, ResponseParts::Response)),
        ("validation", Work::Validate(Validate { trials: Vec::new(), fold: 0, of: 5, scale: SCALE })),
        ("minimiser", Work::Minimise(Minimise { ridge: 0.1, keep: false })),
    ] {
        machine.ask(work).expect(what);
    }
}

/// A batch larger than its portion passes as all of it, and would be drawn from all rows by the server's own seed.
#[test]
fn no_batch_can_be_predicted_by_asking_for_a_portion() {
    let half = sample(Portion::Part { index: 0, of: 2 }, Some(ROWS as u32 / 2 + 1));
    let pace = Acceleration { vectors: [0, 1, 2, 3], a: [0.3, 0.2], b: [0.9, 0.1], chance: 0.5 };
    let mut machine = Machine::linear(10);
    assert!(machine.ask(advance(half.clone(), Some(pace))).is_err());
    machine.ask(advance(half.clone(), None)).expect("plain steps keep to their portion");
    let Work::StepMixture(step) = mixture_step(1, None) else { unreachable!() };
    let mut mixture = Machine::new("gaussian-mixture", "components = 1\ncovariance = \"spherical\"", 10);
    mixture.ask(Work::StepMixture(step.clone())).expect("a step on all rows");
    assert!(mixture.ask(Work::StepMixture(StepMixture { sample: half, ..step })).is_err());
    // A fold of none is no fold.
    assert!(machine.ask(advance(sample(Portion::Fold { index: 0, of: 0 }, None), None)).is_err());
    machine.ask(Work::Minimise(Minimise { ridge: 0.1, keep: false })).expect("the machine goes on");
}

#[test]
fn curvature_does_not_show_the_longest_row() {
    let curvatures = |minimum: usize| Machine::linear(minimum).ask(Work::Curvature(Curvature)).unwrap().numbers;
    let (open, guarded) = (curvatures(1), curvatures(10));
    assert_eq!(open[..2], guarded[..2]);
    let longest = (0..ROWS).map(|place| row(place).iter().map(|value| value * value).sum::<f64>()).fold(0.0, f64::max);
    assert!((open[2] / longest - 2.0).abs() < 1e-9, "twice the squared length: {}", open[2]);
    assert_eq!(guarded[2], ROWS as f64 * guarded[0], "a bound on it that all rows give");
    assert!(guarded[2] >= open[2]);
}

#[test]
fn the_gradient_of_a_twelfth_of_the_rows_is_a_row_where_nothing_is_refused() {
    // What the test above is about: of the gradient -2yx on one row a server knows the direction of x.
    let mut machine = Machine::linear(1);
    let one = Portion::Part { index: 7, of: ROWS as u32 };
    let reply = machine.ask(Work::Gradient(Gradient { of: 0, sample: sample(one, None) })).unwrap();
    let shown: Vec<f64> = reply.vector.unwrap().iter().map(|value| value / (-2.0 * 7.5)).collect();
    assert!(shown.iter().zip(row(7)).all(|(shown, row)| (shown - row).abs() < 1e-12), "{shown:?}");
}

#[test]
fn the_rest_of_a_pass_is_not_a_batch_of_its_own() {
    // Batches of 59 leave one row, which the second step of a pass would see alone.
    let mut machine = Machine::linear(10);
    let steps = |machine: &mut Machine, batch: u32, steps: u32| {
        let plan = plan(sample(Portion::All, Some(batch)), Amount::Steps(steps));
        machine.ask(Work::Train(Train { from: Start::Model(0), plan, keep: Keep::No })).unwrap().vector.unwrap()
    };
    assert_eq!(steps(&mut machine, 59, 2), steps(&mut machine, 60, 2), "the batch has grown to all rows");
}

#[test]
fn which_rows_are_in_a_batch_or_a_part_only_the_machine_knows() {
    let sums = |machine: &mut Machine, on: Portion, batch: Option<u32>| -> Vec<f64> {
        let reply = machine.ask(Work::Gradient(Gradient { of: 0, sample: sample(on, batch) })).unwrap();
        reply.vector.unwrap()
    };
    let part = |index: u32, of: u32| Portion::Part { index, of };
    let (mut open, mut guarded) = (Machine::linear(1), Machine::linear(10));
    // A half is two quarters, so that halves and thirds and so on tell ever fewer rows by their differences.
    let nests = |machine: &mut Machine| {
        let half = sums(machine, part(0, 2), None);
        let quarters = [sums(machine, part(0, 4), None), sums(machine, part(1, 4), None)];
        half.iter()
            .zip(&quarters[0])
            .zip(&quarters[1])
            .all(|((half, one), other)| (half - (one + other) / 2.0).abs() < 1e-9)
    };
    assert!(nests(&mut open) && !nests(&mut guarded));
    assert_ne!(sums(&mut open, Portion::All, Some(12)), sums(&mut guarded, Portion::All, Some(12)));
    assert_eq!(sums(&mut open, Portion::All, None), sums(&mut guarded, Portion::All, None));
    // The parts are still all rows, each once.
    let mut all = [0.0; COLUMNS];
    for index in 0..4 {
        all.iter_mut().zip(sums(&mut guarded, part(index, 4), None)).for_each(|(all, part)| *all += part / 4.0);
    }
    let whole = sums(&mut guarded, Portion::All, None);
    assert!(all.iter().zip(&whole).all(|(all, whole)| (all - whole).abs() < 1e-9), "{all:?} {whole:?}");
}

fn gaussian(components: usize) -> Shape {
    Shape { family: Family::Gaussian(Covariance::Spherical), components, columns: COLUMNS }
}

fn mixture_step(components: usize, batch: Option<u32>) -> Work {
    Work::StepMixture(StepMixture {
        shape: gaussian(components),
        from: None,
        model: Some(0),
        relabel: Vec::new(),
        step: Step { rule: Rule::Stay, sparsity: 0.0, share: 1.0 },
        steps: 1,
        sample: sample(Portion::All, batch),
        limit: None,
        send: Parts::Statistics(Detail::Full),
    })
}

#[test]
fn components_of_a_mixture_show_no_single_row() {
    let model = |components: usize| format!("components = {components}\ncovariance = \"spherical\"");
    let fit = |components: usize| {
        let shape = gaussian(components);
        Work::FitMixture(FitMixture { shape, fitting: Fitting::default(), seed: 1, keep: false, send: Parts::Centres })
    };
    let mut machine = Machine::new("gaussian-mixture", &model(ROWS), 10);
    let said = machine.ask(fit(ROWS)).unwrap_err();
    assert!(said.contains("components of 1 rows, this machine wants at least 10"), "{said}");
    assert!(machine.ask(mixture_step(ROWS, None)).unwrap_err().contains("this machine wants at least 10"));
    let mut machine = Machine::new("gaussian-mixture", &model(2), 10);
    assert!(machine.ask(mixture_step(2, Some(1))).unwrap_err().contains("a batch of 1 rows"));
    // A narrow component around a guess finds the one row that is near it.
    let mut params = [[1e3; COLUMNS], row(7)].concat();
    params.extend([1e9, 1e-9, 0.5, 0.5]);
    assert_eq!(params.len(), machine.width);
    machine.params = params;
    let (members, pulls) = (2..4, 4..10);
    let statistics = machine.ask(mixture_step(2, None)).unwrap().vector.unwrap();
    assert!(statistics[members.clone()][0] > 50.0, "{statistics:?}");
    assert_eq!(statistics[members][1], 0.0);
    assert_eq!(&statistics[pulls][3..], [0.0; 3]);
}

#[test]
fn work_and_memory_of_a_message_are_bounded() {
    let mut machine = Machine::linear(10);
    let endless =
        Work::Train(Train { from: Start::Model(0), plan: plan(Sample::FULL, Amount::Steps(u32::MAX)), keep: Keep::No });
    let epochs = choose(Portion::All, Then::Train(plan(sample(Portion::All, Some(16)), Amount::Epochs(u32::MAX))));
    let mut run = advance(Sample::FULL, None);
    if let Work::Advance(Advance { run: Some(run), .. }) = &mut run {
        run.steps = u32::MAX;
    }
    for work in [endless, epochs, run] {
        let said = machine.ask(work).unwrap_err();
        assert!(said.starts_with("steps of one client: got"), "{said}");
        assert!(said.ends_with("this machine allows 1000000 (node.limits.steps)"), "{said}");
    }
    let tally = Work::Tally(Tally { with: Subject::Models(vec![0]), components: u32::MAX, classes: u32::MAX });
    assert!(machine.ask(tally).unwrap_err().starts_with("numbers for the answer"));
    let nothing = Work::Losses(Losses { of: vec![0], on: Portion::All });
    let order = |index| SiteOrder { index, to: Some(Vec::new()), work: nothing.clone(), sum: None, seal: None };
    let message = machine.message((0..100_001).map(order).collect());
    assert!(send(&mut machine.site, &message).unwrap_err().to_string().starts_with("orders: got 100001"));
    let fitting = Fitting { starts: 1 << 20, iterations: 1 << 20, ..Fitting::default() };
    let fit = FitMixture { shape: gaussian(2), fitting, seed: 1, keep: false, send: Parts::Centres };
    let mut mixture = Machine::new("gaussian-mixture", "components = 2\ncovariance = \"spherical\"", 10);
    assert!(mixture.ask(Work::FitMixture(fit)).unwrap_err().starts_with("steps of one client"));
}

#[test]
fn datasets_and_messages_have_a_largest_size() {
    let node = Node::new(Rows::Partition { index: 0, of: 3 });
    let mut message = hello("clients = 3\nsamples = 100000000\ndimension = 100\n", 0);
    message.data.source = "linear".into();
    let said = send(&mut Site::new(node.clone(), 1).unwrap(), &message).unwrap_err().to_string();
    assert_eq!(said, "rows of the dataset: got 300000060, this machine allows 2000000 (node.limits.rows)");
    message.data.settings = "clients = 100\nsamples = 1000\ndimension = 1000000\n".into();
    let said = send(&mut Site::new(node.clone(), 1).unwrap(), &message).unwrap_err().to_string();
    assert!(said.starts_with("numbers of the dataset: got"), "{said}");
    let mut small = node;
    small.limits.message_bytes = 10;
    let said = send(&mut Site::new(small, 1).unwrap(), &message).unwrap_err().to_string();
    assert!(said.starts_with("bytes in a message: got"), "{said}");
}

/// Code of the user's own that quotes its rows when it fails.
#[derive(Debug)]
struct Talkative {
    held_out: u32,
}

impl Talkative {
    fn secret<T>() -> Result<T> {
        Err(Error::new(ErrorKind::Client, "ValueError: no such pupil: Ada Lovelace, born 1815"))
    }
}

impl OwnClient for Talkative {
    fn id(&self) -> &str {
        "talkative"
    }
    fn rows(&self) -> usize {
        40
    }
    fn can_score(&self) -> bool {
        true
    }
    fn loss(&self, _: Point) -> Result<f64> {
        Ok(1.0)
    }
    fn train(&self, _: Point, _: &Plan, _: &mut [f64]) -> Result<Option<f64>> {
        Self::secret()
    }
    fn gradient(&self, _: Point, _: &Sample, _: &mut [f64]) -> Result<Option<f64>> {
        Self::secret()
    }
    fn score(&self, _: Point) -> Result<OwnScore> {
        Ok(OwnScore { rows: self.held_out, loss: 0.5, hits: None })
    }
    fn save(&self) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn load(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

fn own_machine(held_out: u32) -> Machine {
    let client = Client::own(Box::new(Talkative { held_out }), None, None).unwrap();
    let shape = DataShape { form: Form::Own, ..DataShape::default() };
    let kind = models::kind("own").unwrap();
    let settings = Settings::check("model", kind.settings, toml::from_str("parameters = 2").unwrap(), &mut Vec::new());
    let model = ModelOrder::of(&Blueprint { kind, settings, shape }).unwrap();
    let site = Site::new(Node::new(Rows::Given(vec![client], shape)), 1).unwrap();
    Machine { site, model, width: 2, params: vec![0.0; 2] }
}

impl Machine {
    fn ask_own(&mut self, work: Work) -> std::result::Result<Reply, String> {
        let mut message = self.message(vec![SiteOrder { index: 0, to: None, work, sum: None, seal: None }]);
        if let Request::Work { roll, .. } = &mut message.request {
            *roll = roll_of(["talkative"].into_iter());
        }
        match send(&mut self.site, &message).map_err(|error| error.told())? {
            SiteReply::Replies(mut replies, _) => replies.remove(0).reply.map(|reply| reply.unpack()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_a_clients_own_code_says_of_its_error_stays_on_its_machine() {
    let mut machine = own_machine(20);
    for (verb, work) in
        [("train", train(Sample::FULL)), ("gradient", Work::Gradient(Gradient { of: 0, sample: Sample::FULL }))]
    {
        let said = machine.ask_own(work).unwrap_err();
        assert_eq!(said, format!("client talkative: {verb}: an error of kind client; the machine's own log says more"));
        let log = machine.site.take_log();
        assert!(log.len() == 1 && log[0].contains("Ada Lovelace"), "{log:?}");
    }
}

#[test]
fn clients_of_the_users_own_answer_for_enough_rows_or_not_at_all() {
    let score = Work::Evaluate(Evaluate {
        with: Subject::Models(vec![0]),
        assign_on: kinfolk::training::Split::Train,
        compare: false,
    });
    let said = own_machine(3).ask_own(score.clone()).unwrap_err();
    assert!(said.starts_with("a score of 3 rows, this machine wants at least 10"), "{said}");
    let scored = own_machine(20).ask_own(score).unwrap();
    let scored = Evaluated::read(&scored.counts, &scored.numbers).score;
    assert_eq!(scored, Score { rows: 20, loss: 10.0, hits: None });
    assert!(own_machine(20).ask_own(train(sample(Portion::All, Some(1)))).unwrap_err().contains("a batch of 1 rows"));
    let few = Client::own(Box::new(Few), None, None).unwrap();
    let shape = DataShape { form: Form::Own, ..DataShape::default() };
    let mut message = hello("", 0);
    message.data.source = "own".into();
    let said = send(&mut Site::new(Node::new(Rows::Given(vec![few], shape)), 1).unwrap(), &message).unwrap_err();
    assert!(said.told().contains("objects of your own say how many they have with an attribute rows"), "{said}");
}

/// One that says nothing of its rows.
#[derive(Debug)]
struct Few;

impl OwnClient for Few {
    fn id(&self) -> &str {
        "few"
    }
    fn rows(&self) -> usize {
        1
    }
    fn can_score(&self) -> bool {
        false
    }
    fn loss(&self, _: Point) -> Result<f64> {
        Ok(1.0)
    }
    fn train(&self, _: Point, _: &Plan, _: &mut [f64]) -> Result<Option<f64>> {
        Ok(None)
    }
    fn gradient(&self, _: Point, _: &Sample, _: &mut [f64]) -> Result<Option<f64>> {
        Ok(None)
    }
    fn score(&self, _: Point) -> Result<OwnScore> {
        Talkative::secret()
    }
    fn save(&self) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn load(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

#[test]
fn rows_that_a_schema_blows_up_are_refused_and_so_is_a_large_model() {
    let (_folder, rows) = pupils("1.5");
    let mut node = Node::new(Rows::Table(rows));
    let descriptions: Vec<_> =
        roll(node.clone(), USUAL, 0).unwrap().members.into_iter().map(|it| it.description).collect();
    let message = SiteMessage {
        schema: Some(
            Schema::fix(
                &descriptions,
                Coding {
                    standardise: true,
                    constant: true,
                    kinds: Coding::KINDS,
                    curves: false,
                    numbers_only: false,
                    means_alone: false,
                },
            )
            .unwrap(),
        ),
        ..hello(USUAL, 0)
    };
    send(&mut Site::new(node.clone(), 1).unwrap(), &message).unwrap();
    node.limits.numbers = 200;
    let said = send(&mut Site::new(node, 1).unwrap(), &message).unwrap_err().to_string();
    assert!(said.starts_with("numbers in the encoded rows: got"), "{said}");
    let mut node = Node::new(Rows::Partition { index: 0, of: 1 });
    node.limits.numbers = 5000;
    let mut message = hello("clients = 2\nsamples = 20\ntest_samples = 0\ndimension = 100\n", 0);
    message.data.source = "linear".into();
    let kind = models::kind("mlp").unwrap();
    let settings = Settings::check("model", kind.settings, toml::from_str("hidden = [300]").unwrap(), &mut Vec::new());
    message.model = Some(ModelOrder::of(&Blueprint { kind, settings, shape: DataShape::numbers(100, 0) }).unwrap());
    let said = send(&mut Site::new(node, 1).unwrap(), &message).unwrap_err().to_string();
    assert!(said.starts_with("parameters of the model: got"), "{said}");
}

#[test]
fn a_table_that_is_not_there_is_the_machines_own_business() {
    let rows = TableRows {
        path: PathBuf::from("/nowhere/at/all.csv"),
        client: "school".into(),
        columns: texts(&["score"]),
        words: Vec::new(),
        test_fraction: 0.2,
        split_seed: 0,
    };
    assert!(!refused(&rows, USUAL).contains("nowhere"));
}
