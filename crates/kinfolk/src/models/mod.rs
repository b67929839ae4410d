//! Models. A model fixes a layout of parameters, and computes losses and gradients on a client's rows, or on those of a whole
//! block of clients, in its own precision.
//!
//! `kinds/` says which network or mixture each kind is. A network is forward and backward (`dense/`, `layers/` for images,
//! `lstm/` for texts); everything else about training comes with the one trainer (`trainer/`).

pub(crate) mod accelerated;
mod custom;
mod dense;
mod kinds;
mod layers;
mod lstm;
mod mixture;
pub(crate) mod pulled;
mod trainer;

pub use crate::num::Precision;

use crate::aggregate::{Sum, Weight};
use crate::data::own::OwnStart;
use crate::data::{Augment, Client, DataShape, Form, Shard};
use crate::error::{Error, ErrorKind, Result};
use crate::hierarchy::response::Quadratic;
use crate::memory::check_room;
use crate::mixture::{Scratch, Shape};
use crate::rng::{Key, Rng};
use crate::settings::{Declared, Setting, Settings, choices};
use crate::training::{Plan, Portion, Sample, Then};
pub(crate) use mixture::most_components;
use rand::RngExt;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// A registered kind of model.
#[derive(Debug)]
pub struct ModelKind {
    /// Its name in `model.kind`.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// Whether rows must have a target to learn from.
    pub needs_target: bool,
    /// The rows it reads.
    pub reads: Reads,
    /// Its settings.
    pub settings: &'static [Setting],
    /// Reports faults that involve several settings.
    pub check: fn(&str, &Settings, &mut Vec<Error>),
    /// What methods can do with it, given its settings.
    pub ability: fn(&Settings) -> Ability,
    pub(crate) build: fn(&Settings, DataShape) -> Result<Box<dyn Model>>,
}

/// The settings of a kind of model, from which models are built.
pub(crate) trait ModelSettings: Declared {
    const NAME: &str;
    const SUMMARY: &str;
    const NEEDS_TARGET: bool = true;
    const READS: Reads = Reads::Numbers;
    const ABILITY: Ability;

    fn ability(_: &Settings) -> Ability {
        Self::ABILITY
    }

    /// Builds a model for data of this shape, which [`ModelKind::make`] has checked.
    fn build(self, data: DataShape) -> Result<Box<dyn Model>>;
}

/// What methods can do with a model. There are two families of models; within each, later ones can do all that earlier ones can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ability {
    /// Train it by descent.
    Descent,
    /// Also on single rows of a client, which custom clients do not expose.
    Rows,
    /// Also find its exact minimiser.
    Minimiser,
    /// Also rely on its loss being a quadratic.
    Quadratic,
    /// Train it as a mixture, by steps of EM.
    Mixture,
    /// Also rely on a covariance shared by all components.
    SharedScatter,
}

impl Ability {
    /// Whether it is that of a mixture.
    pub fn of_mixture(self) -> bool {
        self >= Self::Mixture
    }

    /// Whether it satisfies a method that wants this much.
    pub fn suffices(self, wanted: Self) -> bool {
        self.of_mixture() == wanted.of_mixture() && self >= wanted
    }
}

/// Upper bound on the parameters of a model: 16 GiB.
const MOST_PARAMETERS: usize = 1 << 31;

/// The kind of rows a model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Numbers, including the pixels of images.
    Numbers,
    /// Images.
    Images,
    /// Texts.
    Texts,
    /// Whatever custom clients hold.
    Own,
}

impl ModelKind {
    pub(crate) const fn new<S: ModelSettings>() -> Self {
        Self {
            name: S::NAME,
            summary: S::SUMMARY,
            needs_target: S::NEEDS_TARGET,
            reads: S::READS,
            settings: S::SETTINGS,
            check: S::check_section,
            ability: S::ability,
            build: |settings, data| S::of(settings).build(data),
        }
    }

    /// Builds a model for data of this shape.
    pub fn make(&self, settings: &Settings, shape: DataShape) -> Result<Box<dyn Model>> {
        let found = match shape.form {
            Form::Numbers => "numbers in no order",
            Form::Image { .. } => "images",
            Form::Text { .. } => "texts",
            Form::Own => "known to the clients' own code alone",
        };
        let wanted = match self.reads {
            Reads::Numbers => "numbers",
            Reads::Images => "images",
            Reads::Texts => "texts",
            Reads::Own => "whatever the clients' own code holds",
        };
        if !self.fits(shape) {
            let message = format!("model.kind: {} reads {wanted}, but the rows of this data are {found}", self.name);
            let is_mixture = |kind: &ModelKind| (kind.ability)(&Settings::defaults(kind.settings)).of_mixture();
            let others = MODELS.iter().filter(|kind| is_mixture(kind) == is_mixture(self) && kind.suits(shape));
            let others: Vec<&str> = others.map(|kind| kind.name).collect();
            return Err(match others.is_empty() {
                true => Error::settings(message),
                false => Error::settings(message).hint(format!("use {}", others.join(" or "))),
            });
        }
        if let Form::Image { augment, .. } = shape.form
            && augment != Augment::default()
            && self.reads != Reads::Images
        {
            return Err(Error::settings(format!(
                "data: flip and crop are for models of images, {} is none",
                self.name
            ))
            .hint("leave data.flip and data.crop out, or use cnn or resnet9"));
        }
        let model = (self.build)(settings, shape)?;
        match model.layout().len() {
            count @ 0..=MOST_PARAMETERS => {
                // Parameters, their gradient, and what an optimiser remembers.
                check_room("model", &[count, 4], size_of::<f64>())
                    .map_err(|error| error.hint("use fewer or narrower layers"))?;
                Ok(model)
            }
            count => {
                let found =
                    if count < usize::MAX { count.to_string() } else { format!("more than {}", usize::MAX - 1) };
                let message = format!("model: {} would have {found} parameters, want at most", self.name);
                Err(Error::settings(format!("{message} {MOST_PARAMETERS}")).hint("use fewer or narrower layers"))
            }
        }
    }

    /// Whether it can be trained on data of this shape with default settings.
    fn suits(&self, shape: DataShape) -> bool {
        let mut faults = Vec::new();
        let settings = Settings::check("model", self.settings, toml::Table::new(), &mut faults);
        self.fits(shape) && faults.is_empty() && (self.build)(&settings, shape).is_ok()
    }

    /// Whether it can read rows of this form.
    fn fits(&self, shape: DataShape) -> bool {
        match self.reads {
            Reads::Numbers => !matches!(shape.form, Form::Text { .. } | Form::Own),
            Reads::Images => matches!(shape.form, Form::Image { .. }),
            Reads::Texts => matches!(shape.form, Form::Text { .. }),
            Reads::Own => shape.form == Form::Own,
        }
    }
}

/// What another machine needs to build the same model.
#[derive(Debug, Clone)]
pub struct Blueprint {
    /// The kind of model.
    pub kind: &'static ModelKind,
    /// Its settings.
    pub settings: Settings,
    /// The data it is for.
    pub shape: DataShape,
}

impl Blueprint {
    /// Builds the model.
    pub fn build(&self) -> Result<Arc<dyn Model>> {
        self.build_from(None)
    }

    /// Builds the model with the user's initial parameters.
    pub fn build_from(&self, start: Option<OwnStart>) -> Result<Arc<dyn Model>> {
        let mut model = self.kind.make(&self.settings, self.shape)?;
        start.map_or(Ok(()), |start| model.begin_at(start))?;
        Ok(Arc::from(model))
    }
}

/// All kinds of models.
pub static MODELS: &[&ModelKind] = kinds::KINDS;

/// The kind of this name.
pub fn kind(name: &str) -> Option<&'static ModelKind> {
    MODELS.iter().copied().find(|kind| kind.name == name)
}

choices!(Precision { F32 = "f32", F64 = "f64" });

/// Evaluation metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Share of rows classified correctly.
    Accuracy,
    /// Mean squared error.
    SquaredError,
    /// Mean negative log likelihood.
    LogLoss,
    /// Share of rows misclassified under the best matching of components to classes, found per client.
    RowError,
    /// Mean loss, whatever it is a loss of.
    Loss,
}

impl Metric {
    /// Its name in files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Metric::Accuracy => "accuracy",
            Metric::SquaredError => "mse",
            Metric::LogLoss => "nll",
            Metric::RowError => "row_error",
            Metric::Loss => "loss",
        }
    }

    /// The metric summed over rows; `None` where it needs hits and the score has none.
    pub(crate) fn sum(self, score: &Score) -> Option<f64> {
        match self {
            Metric::Accuracy => score.hits.map(f64::from),
            Metric::SquaredError | Metric::LogLoss | Metric::Loss => Some(score.loss),
            Metric::RowError => score.hits.map(|hits| f64::from(score.rows - hits)),
        }
    }
}

/// Sums over a client's rows of what metrics are made from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Number of rows.
    pub rows: u32,
    /// Sum of losses.
    pub loss: f64,
    /// Rows classified correctly, where that is counted.
    pub hits: Option<u32>,
}

/// The named tensors in the flat vector of parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// In order.
    pub tensors: Vec<TensorPlace>,
}

/// One named tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorPlace {
    /// Such as `layer1.weight`.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its offset.
    pub offset: usize,
}

impl TensorPlace {
    /// Its range; saturates where it would not fit any memory.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        let length = self.shape.iter().fold(1, |length: usize, &size| length.saturating_mul(size));
        self.offset..self.offset.saturating_add(length)
    }
}

impl Layout {
    /// Number of parameters.
    pub fn len(&self) -> usize {
        self.tensors.last().map_or(0, |tensor| tensor.range().end)
    }

    /// Whether it has no parameters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A model: a layout, initial parameters, and workers that compute with it.
pub trait Model: Send + Sync {
    /// Its tensors.
    fn layout(&self) -> &Layout;

    /// The precision it computes in and is sent in.
    fn precision(&self) -> Precision;

    /// Its metrics; the first is the default.
    fn metrics(&self) -> &'static [Metric];

    /// A lower bound on its loss.
    fn least_loss(&self) -> f64 {
        0.0
    }

    /// An upper bound on the curvature of the mean loss over rows with this mean squared norm, where there is one:
    /// descent with a step of its inverse cannot diverge.
    fn curvature(&self, mean_square: f64) -> Option<f64> {
        let _ = mean_square;
        None
    }

    /// The factor that makes a row's loss a negative log likelihood, of unit variance where it has one.
    fn likelihood(&self) -> f64 {
        1.0
    }

    /// Random initial parameters.
    fn initialise(&self, rng: &mut Rng) -> Result<Vec<f64>>;

    /// Initial parameters shared by all clients.
    fn common_start(&self, rng: &mut Rng) -> Result<Vec<f64>> {
        self.initialise(rng)
    }

    /// Sets the initial parameters; refused by models that draw their own.
    fn begin_at(&mut self, start: OwnStart) -> Result<()> {
        drop(start);
        Err(Error::settings("start: this model draws its own, want none").hint("a start is for clients of your own"))
    }

    /// Whether it can compute on a part of a client's rows.
    fn divides_rows(&self) -> bool {
        true
    }

    /// Refuses a client's rows that it cannot compute on.
    fn check(&self, client: &Client) -> Result<()>;

    /// A worker for one thread that computes with these models.
    fn worker<'a>(&'a self, models: &[&[f64]]) -> Box<dyn Worker + 'a>;

    /// Exact solutions and second derivatives, of a convex loss.
    fn convex(&self) -> Option<&dyn Convex> {
        None
    }

    /// The form of a model that is a mixture. Mixtures are trained by steps of EM, all others by descent.
    fn mixture(&self) -> Option<&Shape> {
        None
    }

    /// Whether some parameters are running statistics, which training updates without gradients.
    fn keeps_statistics(&self) -> bool {
        false
    }

    /// Whether a vector of this length can be sent as a model: all parameters, or the leading ones of a mixture.
    fn travels(&self, numbers: usize) -> bool {
        numbers == self.layout().len()
    }

    /// Size of what is cached about so many training rows.
    fn prepared_numbers(&self, rows: usize) -> usize {
        rows * rows
    }
}

/// A model whose loss is convex and twice differentiable, with an exact minimiser.
pub trait Convex {
    /// Parameters with the smallest mean loss plus ½·ridge·‖θ‖².
    fn minimise(&self, rows: &Shard, ridge: f64) -> Result<Vec<f64>>;

    /// The second-order expansion of `scale` times the mean loss at one point.
    fn quadratic(&self, rows: &Shard, at: &[f64], scale: f64) -> Quadratic;

    /// Whether that expansion is the loss itself, everywhere.
    fn is_quadratic(&self) -> bool;

    /// The gradient at one point of ⟨weights, Hessian of `scale` times the mean loss⟩.
    fn curvature_gradient(&self, rows: &Shard, at: &[f64], scale: f64, weights: &[f64]) -> Vec<f64>;

    /// Bounds on the curvature of the mean loss: from above, from below, and from above on any single row.
    fn curvatures(&self, rows: &Shard) -> [f64; 3];
}

impl dyn Model + '_ {
    /// Its convex loss, or an error that it has none.
    pub fn want_convex(&self) -> Result<&dyn Convex> {
        self.convex().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "this model has neither an exact minimiser nor second derivatives")
                .hint("use a linear or logistic model")
        })
    }

    /// Whether its loss is a quadratic everywhere.
    pub(crate) fn is_quadratic(&self) -> bool {
        self.convex().is_some_and(Convex::is_quadratic)
    }
}

/// A client with what is cached about its data.
pub struct Seat<'a> {
    /// The client.
    pub client: &'a Client,
    /// What a model computed once from the training rows; never changes an answer.
    pub prepared: &'a OnceLock<Box<dyn Any + Send + Sync>>,
    /// Whether there is memory to cache it.
    pub may_prepare: bool,
    /// The seed of its parts and folds, where nobody else may know it.
    pub secret: Option<u64>,
}

impl Seat<'_> {
    /// The rows inside or outside one of `of` folds, shuffled by the client's key: the order of its rows is irrelevant.
    fn fold(&self, index: u32, of: u32, inside: bool) -> Shard {
        // Another number of folds is another shuffle: folds of the same one would together reveal single rows.
        let key = match self.secret {
            Some(secret) => Key::new(secret).word("folds").number(u64::from(of)),
            None => Key::new(0).word("folds").word(&self.client.id),
        };
        let mut rng = key.rng();
        let first = rng.random_range(0..of);
        let mut order: Vec<usize> = (0..self.client.train.len()).collect();
        order.shuffle(&mut rng);
        let folds = (0..of).cycle().skip(first as usize);
        let mut rows: Vec<usize> =
            order.into_iter().zip(folds).filter(|(_, fold)| (*fold == index) == inside).map(|(row, _)| row).collect();
        rows.sort_unstable();
        self.client.train.pick(&rows)
    }

    pub(crate) fn rows(&self, on: Portion) -> Shard {
        match on {
            Portion::All => self.client.train.clone(),
            Portion::Part { index, of } if self.secret.is_none() => self.client.train.part(index as usize, of as usize),
            Portion::Part { index, of } | Portion::Fold { index, of } => self.fold(index, of, true),
            Portion::Others { index, of } => self.fold(index, of, false),
        }
    }
}

/// The chosen candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Position among the candidates.
    pub position: usize,
    /// Mean loss over the rows.
    pub loss: f64,
}

/// Computes with the models of one ask on one thread. Models are named by their index in the ask.
pub trait Worker {
    /// Loads parameters as one more model, behind those of the ask, and returns its index.
    fn load(&mut self, params: &[f64]) -> usize;

    /// Number of parameters of a model.
    fn width(&self) -> usize;

    /// The mean loss of one model over some rows.
    fn loss(&mut self, model: usize, rows: &Shard) -> f64;

    /// The mean loss of each of these models over some rows.
    fn losses(&mut self, of: &[usize], rows: &Shard) -> Vec<f64> {
        of.iter().map(|&model| self.loss(model, rows)).collect()
    }

    /// The loss of one model on each of some rows.
    fn row_losses(&mut self, model: usize, rows: &Shard) -> Vec<f64> {
        (0..rows.len()).map(|row| self.loss(model, &rows.pick(&[row]))).collect()
    }

    /// The score of one model on some rows.
    fn score(&mut self, model: usize, rows: &Shard) -> Score;

    /// The gradient of the mean loss into `out`; returns the loss.
    fn gradient(&mut self, model: usize, seat: &Seat, sample: &Sample, out: &mut [f64]) -> f64;

    /// The trained parameters into `out`; returns the loss before the first step.
    fn train(&mut self, model: usize, seat: &Seat, plan: &Plan, out: &mut [f64]) -> f64;

    /// The gradient of the mean loss over the client's training rows, or some of them, into `out`; returns that loss.
    fn slope(&mut self, params: &[f64], seat: &Seat, rows: Option<&[u32]>, out: &mut [f64]) -> f64;

    /// The error raised by a custom client since the last call; whatever was computed after it is void.
    fn failure(&mut self) -> Option<Error> {
        None
    }

    /// Scratch memory for mixtures, where the model is one.
    fn scratch(&mut self) -> Option<&mut Scratch> {
        None
    }

    /// The candidate with the smallest loss, ties to the first. `hint` is evaluated first, which only affects speed.
    fn choose(&mut self, among: &[usize], hint: usize, seat: &Seat, on: Portion) -> Choice {
        let _ = hint;
        let rows = seat.rows(on);
        first_smallest(among.iter().map(|&model| self.loss(model, &rows)))
    }

    /// Choices and sums over a block of clients, for orders that all go to the same clients.
    /// `hints` holds the previous choice of every seat and job, and is updated.
    ///
    /// This loop is the plain path; a model may compute the same sums without forming single vectors.
    fn reduce(&mut self, jobs: &[Job], seats: &[Seat], hints: &mut [u32], weight: Weight) -> Vec<Reduced> {
        reduce_plainly(self, jobs, seats, hints, weight)
    }

    /// The choice of a job; a single candidate needs no evaluation.
    fn choose_for(&mut self, job: &Job, hint: usize, seat: &Seat) -> Choice {
        match job.among {
            [_] if !matches!(job.then, Then::Nothing) => Choice { position: 0, loss: f64::NAN },
            among => self.choose(among, hint, seat, job.on),
        }
    }
}

/// The smallest of some losses; one that is not a number counts as infinite, ties go to the first.
pub(crate) fn first_smallest(losses: impl Iterator<Item = f64>) -> Choice {
    let mut best = Choice { position: 0, loss: f64::INFINITY };
    for (position, loss) in losses.enumerate() {
        if loss < best.loss {
            best = Choice { position, loss };
        }
    }
    best
}

/// [`Worker::reduce`] client by client, job by job.
fn reduce_plainly<W: Worker + ?Sized>(
    worker: &mut W,
    jobs: &[Job],
    seats: &[Seat],
    hints: &mut [u32],
    weight: Weight,
) -> Vec<Reduced> {
    let mut vector = vec![0.0; worker.width()];
    let mut reduced: Vec<Reduced> = jobs.iter().map(|job| Reduced::new(job.slots)).collect();
    for (s, seat) in seats.iter().enumerate() {
        for (j, job) in jobs.iter().enumerate() {
            let hint = &mut hints[s * jobs.len() + j];
            let choice = worker.choose_for(job, *hint as usize, seat);
            *hint = choice.position as u32;
            let model = job.among[choice.position];
            let first_loss = match job.then {
                Then::Nothing => choice.loss,
                Then::Gradient(sample) => worker.gradient(model, seat, sample, &mut vector),
                Then::Train(plan) => worker.train(model, seat, plan, &mut vector),
            };
            let weight = weight.of(seat.client.train.len());
            reduced[j].reply(choice.position, if job.among.len() == 1 { first_loss } else { choice.loss });
            if !matches!(job.then, Then::Nothing) {
                reduced[j].add(job.slot(choice.position), weight, &vector);
            }
        }
    }
    reduced
}

/// One order as a worker sees it.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// Candidates, by index in the ask.
    pub among: &'a [usize],
    /// The rows they compete on.
    pub on: Portion,
    /// What follows.
    pub then: &'a Then,
    /// Number of sums: 1, or one per candidate.
    pub slots: usize,
}

impl Job<'_> {
    pub(crate) fn slot(&self, position: usize) -> usize {
        if self.slots == 1 { 0 } else { position }
    }
}

/// What a block of clients answered to one job.
#[derive(Debug, Default)]
pub struct Reduced {
    /// Chosen positions, one per client.
    pub choices: Vec<u32>,
    /// Losses of the chosen models, one per client.
    pub losses: Vec<f64>,
    /// One sum per slot; `total` stays empty until a client is added.
    pub sums: Vec<Sum>,
}

impl Reduced {
    pub(crate) fn new(slots: usize) -> Self {
        Self { sums: vec![Sum::default(); slots], ..Self::default() }
    }

    pub(crate) fn reply(&mut self, position: usize, loss: f64) {
        self.choices.push(position as u32);
        self.losses.push(loss);
    }

    pub(crate) fn add(&mut self, slot: usize, weight: f64, vector: &[f64]) {
        self.sums[slot].add(weight, vector);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainer::testing::{build, images};

    fn refused(name: &str, settings: &str, shape: DataShape) -> String {
        build(kind(name).unwrap(), settings, shape).err().unwrap().to_string()
    }

    #[test]
    fn models_of_absurd_size_are_refused() {
        let shape = images([1, 28, 28], 10);
        assert_eq!(
            refused("cnn", "hidden = [1000000]", shape),
            "model: cnn would have 3147052106 parameters, want at most 2147483648\n  hint: use fewer or narrower layers"
        );
        let large = refused("mlp", "hidden = [100000, 100000]", shape);
        assert!(large.contains("mlp would have 10079600010 parameters"), "{large}");
        let text = DataShape { columns: 80, classes: 80, form: Form::Text { symbols: 80 } };
        let large = refused("lstm", "hidden = 16384\nlayers = 64", text);
        assert!(large.contains("lstm would have 136375435984 parameters"), "{large}");
        let huge = images([1 << 16, 1 << 16, 1 << 16], 10);
        for norm in ["none", "batch"] {
            let settings = format!("filters = [65536]\npool = 1\nhidden = [1048576]\nnorm = \"{norm}\"");
            let large = refused("cnn", &settings, huge);
            assert!(large.contains("more than 18446744073709551614 parameters"), "{large}");
        }
    }

    #[test]
    fn models_are_proposed_that_suit_rows_and_target() {
        let hint = |name: &str, shape| refused(name, "", shape).split("hint: ").nth(1).unwrap().to_string();
        let text = DataShape { columns: 80, classes: 80, form: Form::Text { symbols: 80 } };
        assert_eq!(hint("softmax", text), "use lstm");
        assert_eq!(hint("lstm", DataShape::numbers(4, 0)), "use linear or mlp");
        assert_eq!(hint("cnn", DataShape::numbers(4, 3)), "use softmax or mlp");
        assert_eq!(hint("resnet9", DataShape::numbers(4, 2)), "use logistic or softmax or mlp");
        assert_eq!(hint("lstm", images([1, 28, 28], 10)), "use softmax or mlp or cnn or resnet9");
        assert!(!refused("gaussian-mixture", "components = 2", text).contains("hint"));
    }
}
