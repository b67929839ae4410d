//! The waist: a method asks, a federation has clients do the work and gathers what they answer.
//!
//! An [`Ask`] carries each model once and a few [`Order`]s that name models by index. Every order says
//! who is to do which [`Work`]; [`Gather`] says whether the answers come back one by one or as sums.
//! A federation never knows which method it serves, and a method never sees a client's data.
//!
//! | file | what it is |
//! |---|---|
//! | `gather.rs` | the server's side: replies into answers and sums, without those that cannot be |
//! | `ledger.rs` | what is remembered of the answers over all asks |
//! | `own.rs` | work on what clients keep between asks |
//! | `mixtures.rs` | work on mixtures, and the clients' side of it |
//! | `host.rs` | the clients' side: does an order's work on the data; `personal.rs` has the part of `own.rs` |
//! | `engine.rs` | what a run needs of a federation beyond asking |
//! | `local.rs` | the engine in this process, on all cores |
//! | `remote.rs` | the engine of clients on other machines, which sends bytes |
//! | `rolls.rs` | who may take part of those that machines say they have |
//! | `site.rs` | the other machines' side: bytes in, bytes out |
//! | `node.rs` | what a machine itself decides: its rows, their columns, the least rows of an answer, limits |
//! | `guard.rs` | work that such a machine does for nobody |
//! | `wire.rs` | asks and answers as bytes |
//! | `faults.rs` | clients that are silent, late, broken or hostile |
//! | `meter.rs` | what travelled |

pub mod engine;
pub mod faults;
mod gather;
mod guard;
pub mod host;
pub mod ledger;
pub mod local;
pub mod meter;
pub mod mixtures;
pub mod node;
pub mod own;
mod personal;
pub mod remote;
mod rolls;
pub mod site;
pub mod wire;

use crate::data::schema::{Description, Schema};
use crate::error::{Error, ErrorKind, Result};
use crate::hierarchy::response::Response;
use crate::models::Model;
use meter::Meter;
use mixtures::{FitMixture, MIXTURE_LOSSES, MixtureStep};
use own::{Advance, Answer, Pull, Respond, Scale};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;

/// A model's parameters at the server.
pub type Params = Arc<Vec<f64>>;

/// Clients that can be asked to do work.
pub trait Federation {
    /// Who is there, in an order that stays the same.
    fn clients(&self) -> &[ClientInfo];

    /// Has the work done and gathers the answers, sorted by client.
    fn ask(&mut self, ask: &Ask) -> Result<Answers>;

    /// What has travelled so far.
    fn meter(&self) -> &Meter;
}

/// What the server knows of a client without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// Its stable name.
    pub id: String,
}

/// One round trip: models, who does what with them, and how the answers come back.
#[derive(Debug, Clone)]
pub struct Ask {
    /// What it is for; the meter keeps phases apart and faults spare evaluation.
    pub phase: Phase,
    /// The models the orders name by index. Each travels once to a client that needs it.
    pub models: Vec<Params>,
    /// Who does what. A client named by several orders does each of them.
    pub orders: Vec<Order>,
    /// How answers come back.
    pub gather: Gather,
}

/// What an ask is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Before the first round: describing the data, finding a start.
    Start,
    /// A round of the method.
    Train,
    /// Scoring; not counted as communication of the method.
    Evaluate,
}

impl Phase {
    /// As written in rounds.csv.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Start => "start",
            Phase::Train => "train",
            Phase::Evaluate => "evaluate",
        }
    }
}

/// Work for a set of clients.
#[derive(Debug, Clone)]
pub struct Order {
    /// Who does it.
    pub to: Recipients,
    /// What they do.
    pub work: Work,
}

/// A set of clients.
#[derive(Debug, Clone, PartialEq)]
pub enum Recipients {
    /// Everybody.
    All,
    /// These, ascending, by index into [`Federation::clients`].
    List(Arc<Vec<u32>>),
}

impl Recipients {
    /// These clients, in any order.
    pub fn list(mut clients: Vec<u32>) -> Self {
        clients.sort_unstable();
        clients.dedup();
        Recipients::List(Arc::new(clients))
    }

    /// How many there are, of `all` clients.
    pub fn count(&self, all: usize) -> usize {
        match self {
            Recipients::All => all,
            Recipients::List(list) => list.len(),
        }
    }

    /// Whether this client is one of them.
    pub fn contains(&self, client: u32) -> bool {
        match self {
            Recipients::All => true,
            Recipients::List(list) => list.binary_search(&client).is_ok(),
        }
    }
}

/// What a client can be asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Work {
    /// Say what the data looks like: rows, group, columns; with sums and squares if wanted.
    Describe {
        /// Whether to sum up the columns.
        moments: bool,
    },
    /// Encode the table's columns by this schema, the same for everybody.
    Adopt {
        /// Categories, scaling and target.
        schema: Schema,
    },
    /// The share of the training rows that each of these models fits best, ties to the first.
    Shares {
        /// The models.
        among: Vec<usize>,
    },
    /// The mean loss of each of these models.
    Losses {
        /// The models.
        of: Vec<usize>,
        /// On which rows.
        on: Portion,
    },
    /// The gradient of the mean loss of one model.
    Gradient {
        /// The model.
        of: usize,
        /// On which rows.
        sample: Sample,
    },
    /// Training from one model.
    Train {
        /// Where it begins.
        from: Start,
        /// How it goes.
        plan: Plan,
        /// Whether the result becomes the client's own model.
        keep: Keep,
    },
    /// Find the model with the smallest loss (ties to the first), and go on from it.
    Choose {
        /// The candidates.
        among: Vec<usize>,
        /// On which rows they compete.
        on: Portion,
        /// What to do with the winner.
        then: Then,
    },
    /// The exact minimiser of the local loss.
    Minimise {
        /// Strength of ½·ridge·‖θ‖² added to the mean loss.
        ridge: f64,
        /// Keep the result as the client's own model instead of sending it.
        keep: bool,
    },
    /// The metric on held-out rows of the model with the smallest loss.
    Score {
        /// Candidates, or the client's own model.
        with: Subject,
        /// Which rows decide between candidates.
        assign_on: Split,
    },
    /// Move the vectors the client keeps: towards models of the ask, and down its own loss.
    Advance(Advance),
    /// Say how the client's best model answers to a centre that pulls at it.
    Respond(Respond),
    /// How much the mean loss curves on the training rows: at most, at least, and at most on a single row.
    Curvature,
    /// How models learnt from some training rows, under the pull of a centre, do on the others.
    Validate {
        /// What is tried.
        trials: Vec<Pull>,
        /// The fold that is held out.
        fold: u32,
        /// How many folds there are.
        of: u32,
        /// The client's loss in the method's objective.
        scale: Scale,
    },
    /// Fit a mixture to the client's own rows.
    FitMixture(FitMixture),
    /// Take steps of EM or gradient EM.
    MixtureStep(MixtureStep),
    /// Count held-out rows by component and class.
    Tally {
        /// The client's own mixture, or one of the ask.
        with: Subject,
        /// The mixture's components.
        components: u32,
        /// How many classes there are.
        classes: u32,
    },
    /// Take these models, with which the method serves the client from now on; nothing comes back.
    Receive {
        /// One model, or several to choose from by their loss.
        models: Vec<usize>,
    },
}

/// What follows a choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Then {
    /// Nothing: the choice and its loss are the answer.
    Nothing,
    /// The gradient of the chosen model.
    Gradient(Sample),
    /// Training from the chosen model.
    Train(Plan),
}

/// Whether a client keeps what it has trained as its own model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keep {
    /// No, it is only sent.
    No,
    /// It is kept and not sent.
    Instead,
    /// It is kept and sent.
    Also,
}

/// Where training begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Start {
    /// From a model of the ask.
    Model(usize),
    /// From the client's own model, as it was left by the ask with this stamp.
    Own {
        /// The stamp the client's state must carry.
        stamp: u64,
    },
    /// From a random model of the client's own, drawn from this seed and its id.
    Fresh {
        /// The seed.
        seed: u64,
    },
}

/// What is scored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Subject {
    /// The best of these models.
    Models(Vec<usize>),
    /// The client's own model with this stamp.
    Own {
        /// The stamp the client's state must carry.
        stamp: u64,
    },
    /// The same with a model of the ask in place of its first parameters.
    Completed {
        /// The model.
        model: usize,
        /// The stamp the client's state must carry.
        stamp: u64,
    },
    /// The minimiser of the client's own loss.
    Alone,
}

/// Training rows or held-out rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Split {
    /// Training rows.
    Train,
    /// Held-out rows.
    Test,
}

/// Some of a client's training rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Portion {
    /// All of them.
    All,
    /// Part `index` of `of` disjoint parts.
    Part {
        /// Which part, from 0.
        index: u32,
        /// How many parts there are.
        of: u32,
    },
    /// One of `of` folds, into which each client's own shuffle divides its rows.
    Fold {
        /// Which fold, from 0.
        index: u32,
        /// How many folds there are.
        of: u32,
    },
    /// All rows but those of a fold.
    Others {
        /// The fold left out, from 0.
        index: u32,
        /// How many folds there are.
        of: u32,
    },
}

/// Which rows a gradient sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The rows to draw from.
    pub on: Portion,
    /// Rows in a batch; all of them when absent.
    pub batch: Option<u32>,
    /// Seeds the batches, together with the client's id.
    pub seed: u64,
}

impl Sample {
    /// Every row, every time.
    pub const FULL: Sample = Sample { on: Portion::All, batch: None, seed: 0 };
}

/// How a client trains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The rows of every step.
    pub sample: Sample,
    /// How long.
    pub amount: Amount,
    /// Step size.
    pub step: f64,
    /// How gradients become steps.
    pub optimiser: Optimiser,
    /// Models of the ask that pull at the parameters on their way.
    pub pulls: Vec<Pull>,
    /// How steps shrink, where they end, and what is sent.
    pub course: Course,
}

impl Plan {
    /// The models that pull.
    fn centres(&self) -> impl Iterator<Item = usize> {
        self.pulls.iter().map(|pull| pull.centre)
    }
}

/// How the steps of one training shrink, where they end, and what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// Step t, from 1, is the step size divided by t.
    pub fading: bool,
    /// The mean of the models after each step, weighted by t, instead of the last model.
    pub averaged: bool,
    /// No further step once the gradient, with weight decay, is no longer than this; 0 for all steps.
    pub tolerance: f64,
}

impl Course {
    /// Equal steps, all of them, and the last model.
    pub const PLAIN: Course = Course { fading: false, averaged: false, tolerance: 0.0 };
}

/// How long a client trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Amount {
    /// So many steps.
    Steps(u32),
    /// So many passes over the rows.
    Epochs(u32),
}

/// How gradients become steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Optimiser {
    /// Gradient descent: v ← momentum·v + g + weight_decay·θ, θ ← θ − step·v.
    Descent {
        /// 0 is plain descent.
        momentum: f64,
        /// Pull towards 0.
        weight_decay: f64,
    },
    /// Adam with bias correction; weight decay is added to the gradient.
    Adam {
        /// Pull towards 0.
        weight_decay: f64,
    },
}

/// How answers come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gather {
    /// One by one.
    Each,
    /// As sums over clients, per order and slot; the method divides.
    Sum {
        /// What a slot is.
        by: By,
        /// What each answer counts.
        weight: Weight,
    },
}

/// What the slots of a sum are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// One slot for all clients of an order.
    All,
    /// One slot for every candidate of a choice.
    Choice,
}

/// What an answer counts in a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Weight {
    /// 1.
    Uniform,
    /// The client's training rows.
    Rows,
}

impl Weight {
    /// The weight of a client with so many rows.
    pub fn of(self, rows: usize) -> f64 {
        match self {
            Weight::Uniform => 1.0,
            Weight::Rows => rows as f64,
        }
    }
}

/// What came back, per order of the ask.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// In the order of the ask's orders.
    pub orders: Vec<OrderAnswers>,
    /// Clients that were asked and gave nothing usable, ascending.
    pub missing: Vec<Missing>,
    /// The number of this ask; what clients kept of it carries this stamp.
    pub stamp: u64,
}

/// The answers to one order. The lists run along `clients`; those that do not apply are empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OrderAnswers {
    /// Who answered, ascending.
    pub clients: Vec<u32>,
    /// Training rows of each.
    pub rows: Vec<u32>,
    /// The position of the chosen model among the candidates.
    pub choices: Vec<u32>,
    /// Losses, `losses.len() / clients.len()` of them for each client.
    pub losses: Vec<f64>,
    /// Scores on held-out rows.
    pub scores: Vec<Score>,
    /// Models or gradients end to end, when gathered one by one.
    pub vectors: Vec<f64>,
    /// One entry a slot, when gathered as sums.
    pub sums: Vec<Sum>,
    /// Descriptions of the data.
    pub descriptions: Vec<Description>,
}

/// A sum of models or gradients over the clients of a slot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// Σ weight · vector; empty when nobody is in the slot.
    pub total: Vec<f64>,
    /// Σ weight.
    pub weight: f64,
    /// How many clients.
    pub count: usize,
}

/// How well one model does on one client's rows, as sums over the rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// How many rows.
    pub rows: u32,
    /// Sum of losses.
    pub loss: f64,
    /// Rows whose class was right, where somebody counts them.
    pub hits: Option<u32>,
}

/// A client that gave nothing usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// Who.
    pub client: u32,
    /// Why.
    pub reason: Absence,
}

/// Why an answer is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// It never came.
    Silent,
    /// It came after the deadline.
    Late,
    /// It was not what was asked for, or cannot be true.
    Garbage,
}

impl OrderAnswers {
    /// How many losses each client sent.
    pub fn losses_each(&self) -> usize {
        self.losses.len() / self.clients.len().max(1)
    }

    /// The vector of the client at this position.
    pub fn vector(&self, position: usize) -> &[f64] {
        let width = self.vectors.len() / self.clients.len().max(1);
        &self.vectors[position * width..(position + 1) * width]
    }
}

/// Which orders of an ask go to which client, without looking through all of them for each.
pub(crate) struct OrderIndex {
    /// The orders to everybody.
    all: Vec<u32>,
    /// Orders to listed clients, client by client, and where each client's begin.
    listed: Vec<u32>,
    starts: Vec<u32>,
}

impl OrderIndex {
    pub(crate) fn of(ask: &Ask, clients: usize) -> Self {
        let numbered = || (0u32..).zip(&ask.orders);
        let all = numbered().filter(|(_, order)| order.to == Recipients::All).map(|(index, _)| index).collect();
        let lists = || {
            numbered().filter_map(|(index, order)| match &order.to {
                Recipients::List(list) => Some((index, list)),
                Recipients::All => None,
            })
        };
        let mut starts = vec![0u32; if lists().next().is_some() { clients + 1 } else { 0 }];
        lists().flat_map(|(_, list)| list.iter()).for_each(|&client| starts[client as usize + 1] += 1);
        (1..starts.len()).for_each(|client| starts[client] += starts[client - 1]);
        let mut next = starts.clone();
        let mut listed = vec![0; starts.last().map_or(0, |&end| end as usize)];
        for (index, list) in lists() {
            for &client in list.iter() {
                listed[next[client as usize] as usize] = index;
                next[client as usize] += 1;
            }
        }
        Self { all, listed, starts }
    }

    /// The orders of every client, where all have the same.
    pub(crate) fn everybody(&self) -> Option<&[u32]> {
        self.starts.is_empty().then_some(&self.all)
    }

    /// The orders of one client, ascending.
    pub(crate) fn of_client(&self, client: u32) -> Cow<'_, [u32]> {
        let listed = match self.starts.get(client as usize..client as usize + 2) {
            Some(bounds) => &self.listed[bounds[0] as usize..bounds[1] as usize],
            None => &[],
        };
        if self.all.is_empty() {
            return Cow::from(listed);
        }
        let mut orders = [&self.all, listed].concat();
        orders.sort_unstable();
        Cow::from(orders)
    }
}

impl Ask {
    /// Refuses an ask that names models or clients that are not there.
    pub fn check(&self, clients: usize) -> Result<()> {
        let fault = |message: String| Err(Error::new(ErrorKind::Federation, message));
        for (index, order) in self.orders.iter().enumerate() {
            if let Recipients::List(list) = &order.to
                && (list.iter().any(|&client| client as usize >= clients) || !list.is_sorted())
            {
                return fault(format!("order {index} names a client that is not there (there are {clients})"));
            }
            let named = order.work.models();
            if let Some(model) = named.iter().find(|model| **model >= self.models.len()) {
                return fault(format!("order {index} names model {model} of {}", self.models.len()));
            }
            if let Work::Advance(advance) = &order.work
                && !advance.is_sound()
            {
                return fault(format!("order {index} moves vectors that do not fit each other"));
            }
            if let Some((part, of)) = order.work.parts().into_iter().find(|(part, of)| part >= of) {
                return fault(format!("order {index} names part {part} of {of}"));
            }
            let needs_models = match &order.work {
                Work::Choose { .. } | Work::Losses { .. } | Work::Shares { .. } => true,
                Work::Score { with, .. } => matches!(with, Subject::Models(_)),
                _ => false,
            };
            if named.is_empty() && needs_models {
                return fault(format!("order {index} has no model to work with"));
            }
        }
        // A second order to keep something would be taken for a repetition of the first.
        let keeping: Vec<&Order> = self.orders.iter().filter(|order| order.work.keeps()).collect();
        if keeping.len() > 1 {
            let mut keeps = vec![false; clients];
            let mut twice = |client: u32| std::mem::replace(&mut keeps[client as usize], true);
            let found = keeping.iter().find_map(|order| match &order.to {
                Recipients::All => (0..clients as u32).find(|&client| twice(client)),
                Recipients::List(list) => list.iter().copied().find(|&client| twice(client)),
            });
            if let Some(client) = found {
                return fault(format!("two orders have client {client} keep something"));
            }
        }
        Ok(())
    }

    /// Refuses parameters that cannot travel, and work that this model cannot do.
    pub(crate) fn suits(&self, model: &dyn Model) -> Result<()> {
        let want = model.layout().len();
        // Only what orders name must be there: a machine gets the models that its own clients need.
        let named = self.orders.iter().flat_map(|order| order.work.models().into_owned());
        if let Some(found) = named.map(|index| &self.models[index]).find(|params| !model.travels(params.len())) {
            return Err(Error::new(ErrorKind::Shape, format!("a model of {} numbers, want {want}", found.len())));
        }
        if model.keeps_statistics() && self.orders.iter().any(|order| order.work.moves_by_gradients()) {
            let message = "gradients leave the running statistics of batch normalisation as they were at the start";
            return Err(Error::new(ErrorKind::Unsupported, message)
                .hint("use norm = \"group\" in the model, or a method with averaging = \"models\""));
        }
        let is_mixture = model.mixture().is_some();
        match self.orders.iter().find(|order| order.work.wants_mixture().is_some_and(|wants| wants != is_mixture)) {
            Some(_) if is_mixture => {
                Err(Error::new(ErrorKind::Unsupported, "a mixture is not trained by descent, want steps of EM"))
            }
            Some(_) => Err(Error::new(ErrorKind::Unsupported, "the clients' model is not a mixture")),
            None => Ok(()),
        }
    }
}

impl Work {
    /// In one word.
    pub fn name(&self) -> &'static str {
        match self {
            Work::Describe { .. } => "describe",
            Work::Adopt { .. } => "adopt",
            Work::Shares { .. } => "shares",
            Work::Losses { .. } => "losses",
            Work::Gradient { .. } => "gradient",
            Work::Train { .. } => "train",
            Work::Choose { .. } => "choose",
            Work::Minimise { .. } => "minimise",
            Work::Score { .. } => "score",
            Work::Advance(_) => "advance",
            Work::Respond(_) => "respond",
            Work::Curvature => "curvature",
            Work::Validate { .. } => "validate",
            Work::FitMixture(_) => "fit-mixture",
            Work::MixtureStep(_) => "mixture-step",
            Work::Tally { .. } => "tally",
            Work::Receive { .. } => "receive",
        }
    }

    /// The models it needs, by index.
    pub fn models(&self) -> Cow<'_, [usize]> {
        match self {
            Work::Losses { of, .. } | Work::Shares { among: of } | Work::Receive { models: of } => Cow::from(of),
            Work::Gradient { of, .. } => Cow::from(std::slice::from_ref(of)),
            Work::Train { from, plan, .. } => {
                let start = match from {
                    Start::Model(model) => Some(*model),
                    Start::Own { .. } | Start::Fresh { .. } => None,
                };
                start.into_iter().chain(plan.centres()).collect()
            }
            Work::Choose { among, then: Then::Train(plan), .. } => {
                among.iter().copied().chain(plan.centres()).collect()
            }
            Work::Choose { among, .. } => Cow::from(among),
            Work::Score { with: Subject::Models(models), .. } | Work::Tally { with: Subject::Models(models), .. } => {
                Cow::from(models)
            }
            Work::Score { with: Subject::Completed { model, .. }, .. }
            | Work::Tally { with: Subject::Completed { model, .. }, .. } => Cow::from(std::slice::from_ref(model)),
            Work::Advance(Advance { from, blend, .. }) => {
                let start = match from {
                    Start::Model(model) => Some(*model),
                    Start::Own { .. } | Start::Fresh { .. } => None,
                };
                start.into_iter().chain(blend.iter().flat_map(|blend| &blend.add).map(|addend| addend.model)).collect()
            }
            Work::Respond(Respond { pull, .. }) => Cow::from(std::slice::from_ref(&pull.centre)),
            Work::Validate { trials, .. } => trials.iter().map(|trial| trial.centre).collect(),
            Work::Describe { .. } | Work::Adopt { .. } | Work::Minimise { .. } => Cow::from(&[]),
            Work::MixtureStep(MixtureStep { model, .. }) => Cow::from(model.as_slice()),
            Work::Score { .. } | Work::Curvature | Work::FitMixture(_) | Work::Tally { .. } => Cow::from(&[]),
        }
    }

    /// The stamp of what a client must have kept for it.
    pub(crate) fn expects(&self) -> Option<u64> {
        match self {
            Work::Train { from: Start::Own { stamp }, .. }
            | Work::Advance(Advance { from: Start::Own { stamp }, .. })
            | Work::Score { with: Subject::Own { stamp } | Subject::Completed { stamp, .. }, .. }
            | Work::Tally { with: Subject::Own { stamp } | Subject::Completed { stamp, .. }, .. } => Some(*stamp),
            Work::MixtureStep(step) => step.from,
            _ => None,
        }
    }

    /// The parts and folds of rows that it names, and of how many.
    fn parts(&self) -> Vec<(u32, u32)> {
        let part = |on: &Portion| match *on {
            Portion::All => None,
            Portion::Part { index, of } | Portion::Fold { index, of } | Portion::Others { index, of } => {
                Some((index, of))
            }
        };
        match self {
            Work::Validate { fold, of, .. } => vec![(*fold, *of)],
            Work::Respond(Respond { on, .. }) | Work::Losses { on, .. } => part(on).into_iter().collect(),
            Work::Gradient { sample, .. } => part(&sample.on).into_iter().collect(),
            Work::Train { plan, .. } => part(&plan.sample.on).into_iter().collect(),
            Work::Choose { on, then, .. } => {
                let then = match then {
                    Then::Nothing => None,
                    Then::Gradient(sample) => part(&sample.on),
                    Then::Train(plan) => part(&plan.sample.on),
                };
                part(on).into_iter().chain(then).collect()
            }
            _ => Vec::new(),
        }
    }

    /// How many numbers its answer has that can be summed: models, gradients, or what else a method adds up.
    pub fn sends(&self, width: usize) -> usize {
        match self {
            Work::Gradient { .. } => width,
            Work::Train { keep: Keep::No | Keep::Also, .. } | Work::Minimise { keep: false, .. } => width,
            Work::Choose { then, .. } if *then != Then::Nothing => width,
            Work::Advance(advance) => advance.send.len() * width,
            Work::Respond(Respond { send, .. }) => match send {
                Answer::Nothing => 0,
                Answer::Response | Answer::Quadratic => Response::packed_len(width),
                Answer::ResponseAndSlope => 2 * Response::packed_len(width),
            },
            Work::FitMixture(FitMixture { shape, send, .. }) | Work::MixtureStep(MixtureStep { shape, send, .. }) => {
                send.count(shape)
            }
            Work::Tally { components, classes, .. } => *components as usize * *classes as usize,
            _ => 0,
        }
    }

    /// Whether clients keep something of it.
    fn keeps(&self) -> bool {
        match self {
            Work::Train { keep, .. } => *keep != Keep::No,
            Work::Minimise { keep, .. } | Work::Respond(Respond { keep, .. }) => *keep,
            Work::FitMixture(FitMixture { keep, .. }) => *keep,
            Work::MixtureStep(MixtureStep { from, .. }) => from.is_some(),
            Work::Advance(_) => true,
            _ => false,
        }
    }

    /// Whether it needs a mixture, or anything else that has gradients; `None` for work on any model.
    fn wants_mixture(&self) -> Option<bool> {
        match self {
            Work::FitMixture(_) | Work::MixtureStep(_) | Work::Tally { .. } => Some(true),
            Work::Describe { .. }
            | Work::Adopt { .. }
            | Work::Losses { .. }
            | Work::Score { .. }
            | Work::Receive { .. } => None,
            _ => Some(false),
        }
    }

    /// Whether models move along gradients outside of a training.
    fn moves_by_gradients(&self) -> bool {
        matches!(self, Work::Gradient { .. } | Work::Choose { then: Then::Gradient(_), .. } | Work::Advance(_))
    }

    /// Whether its answer is a vector that can be summed.
    pub fn sends_vector(&self) -> bool {
        self.sends(1) > 0
    }

    /// How many losses its answer has.
    pub fn losses(&self) -> usize {
        match self {
            Work::Losses { of, .. } | Work::Shares { among: of } => of.len(),
            Work::Score { with: Subject::Models(models), .. } => models.len(),
            Work::Describe { .. } | Work::Adopt { .. } | Work::Receive { .. } => 0,
            Work::Respond(_) => 2,
            Work::Advance(advance) => 1 + usize::from(advance.vectors == 4),
            Work::Curvature => 3,
            Work::FitMixture(_) | Work::MixtureStep(_) => MIXTURE_LOSSES,
            Work::Tally { .. } => 0,
            Work::Validate { trials, .. } => trials.len(),
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DataShape, Form};
    use crate::rng::Key;
    use crate::settings::Settings;

    /// What is said to work on a small network with this normalisation.
    fn check(norm: &str, work: Work) -> Result<()> {
        let kind = crate::models::kind("cnn").unwrap();
        let settings = format!("filters = [2]\nhidden = []\nnorm = \"{norm}\"");
        let settings = Settings::check("model", kind.settings, toml::from_str(&settings).unwrap(), &mut Vec::new());
        let form = Form::Image { channels: 1, height: 2, width: 2, augment: Default::default() };
        let model = kind.make(&settings, DataShape { columns: 4, classes: 2, form }).unwrap();
        let models = vec![Arc::new(model.initialise(&mut Key::new(0).rng()).unwrap())];
        let orders = vec![Order { to: Recipients::All, work }];
        Ask { phase: Phase::Train, models, orders, gather: Gather::Each }.suits(&*model)
    }

    #[test]
    fn statistics_need_a_training() {
        let plan = Plan {
            sample: Sample::FULL,
            amount: Amount::Steps(1),
            step: 0.1,
            optimiser: Optimiser::Adam { weight_decay: 0.0 },
            pulls: Vec::new(),
            course: Course::PLAIN,
        };
        let choose = |then| Work::Choose { among: vec![0], on: Portion::All, then };
        let advance = Work::Advance(Advance {
            from: Start::Model(0),
            vectors: 1,
            blend: None,
            run: None,
            anchor: false,
            send: Vec::new(),
            scale: Scale { factor: 1.0, by: Weight::Uniform },
        });
        let gradient = Work::Gradient { of: 0, sample: Sample::FULL };
        for work in [gradient, choose(Then::Gradient(Sample::FULL)), advance] {
            assert!(check("group", work.clone()).is_ok(), "{work:?}");
            let refused = check("batch", work).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
            assert!(refused.to_string().contains("norm = \"group\""), "{refused}");
        }
        for work in [choose(Then::Train(plan)), choose(Then::Nothing)] {
            assert!(check("batch", work).is_ok());
        }
    }
}
