//! Models. A model fixes a layout of parameters, and computes losses and gradients on a client's rows, or on those of a whole
//! block of clients, in its own precision.
//!
//! `kinds/` says which network or mixture each kind is. A network is forward and backward (`dense/`, `layers/` for images,
//! `lstm/` for texts); everything else about training comes with the one trainer (`trainer/`).

pub(crate) mod accelerated;
#[doc(hidden)]
pub mod architecture;
mod custom;
mod dense;
mod kinds;
mod layers;
mod lstm;
mod mixture;
mod own;
mod packed;
pub(crate) mod pulled;
mod slopes;
mod trainer;
mod worker;

pub use crate::num::Precision;

use crate::data::own::OwnStart;
use crate::data::{Augment, Client, DataShape, Features, Form, Shard};
use crate::error::{Error, ErrorKind, Result};
use crate::families::Response;
use crate::hierarchy::response::Quadratic;
use crate::memory::check_room;
use crate::mixture::Shape;
use crate::privacy::answers::HiddenAnswer;
use crate::rng::{Key, Rng};
use crate::settings::{Declared, Setting, Settings, choices, settings};
use architecture::Architecture;
pub use kinds::{
    AutoModelSettings, CnnSettings, GaussianMixtureSettings, LinearSettings, LogisticSettings, LstmSettings,
    MlpSettings, RegressionMixtureSettings, Resnet9Settings, SoftmaxSettings,
};
pub(crate) use mixture::most_components;
pub use own::OwnNetwork;
#[doc(hidden)]
pub use packed::Packed;
#[doc(hidden)]
pub use trainer::batches::{Course, course_of};

/// What the settings of models are made of.
pub mod options {
    pub use super::Precision;
    pub use super::dense::Initial;
    pub use super::kinds::options::*;
    pub use super::mixture::Components;
    pub use crate::mixture::{Covariance, Noise};
}

use crate::training::{Plan, Portion, Sample};
use rand::RngExt;
use serde::{Deserialize, Serialize};
pub(crate) use slopes::{Slopes, steps_for};
use std::sync::Arc;
pub(crate) use worker::first_smallest;
#[doc(hidden)]
pub use worker::{Choice, Choosing, Found, Reduced, Seat, Step, Summing, Worker};

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
    /// Whether the gradients of single rows can be cut to a length, which privacy of rows needs.
    #[doc(hidden)]
    pub row_gradients: bool,
    /// Its settings.
    pub settings: &'static [Setting],
    /// Reports faults that involve several settings.
    pub check: fn(&str, &Settings, &mut Vec<Error>),
    /// What methods can do with it, given its settings.
    pub ability: fn(&Settings) -> Ability,
    pub(crate) build: fn(&Settings, DataShape) -> Result<Box<dyn Model>>,
}

/// The settings of a kind of model, from which models are built.
pub trait ModelSettings: Declared {
    /// Its name in `model.kind`.
    const NAME: &str;
    /// One line for people.
    const SUMMARY: &str;
    /// Whether rows must have a target to learn from.
    const NEEDS_TARGET: bool = true;
    /// The rows it reads.
    const READS: Reads = Reads::Numbers;
    /// Whether the gradients of single rows can be cut to a length, which privacy of rows needs.
    #[doc(hidden)]
    const ROW_GRADIENTS: bool = false;
    /// What methods can do with it, whatever its settings.
    const ABILITY: Ability;
    /// The kind of model.
    const MODEL: &'static ModelKind = &ModelKind::new::<Self>();

    /// What methods can do with it, given its settings.
    #[doc(hidden)]
    fn ability(_: &Settings) -> Ability {
        Self::ABILITY
    }

    /// Builds a model for data of this shape, which [`ModelKind::make`] has checked.
    #[doc(hidden)]
    fn build(self, data: DataShape) -> Result<Box<dyn Model>>;
}

/// What methods can do with a model. There are two families of models; within each, later ones can do all that earlier ones can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ability {
    /// Train it by descent.
    Descent,
    /// Also on single rows of a client, which custom clients do not expose.
    Rows,
    /// Also rely on its being linear in its parameters, but for a link.
    Linear,
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
    #[doc(hidden)]
    pub fn of_mixture(self) -> bool {
        self >= Self::Mixture
    }

    /// Whether clients find the exact minimiser of their loss.
    pub(crate) fn solves_exactly(self) -> bool {
        !self.of_mixture() && self >= Self::Minimiser
    }

    /// Whether it satisfies a method that wants this much.
    #[doc(hidden)]
    pub fn suffices(self, wanted: Self) -> bool {
        self.of_mixture() == wanted.of_mixture() && self >= wanted
    }
}

/// Upper bound on the parameters of a model: 16 GiB.
const MOST_PARAMETERS: usize = 1 << 31;

/// The kind of rows a model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
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
            row_gradients: S::ROW_GRADIENTS,
            settings: S::SETTINGS,
            check: S::check_section,
            ability: S::ability,
            build: |settings, data| S::of(settings).build(data),
        }
    }

    /// Builds a model for data of this shape.
    #[doc(hidden)]
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
            let others: Vec<&str> = others.map(|kind| kind.name).filter(|name| *name != "auto").collect();
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
#[doc(hidden)]
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
#[doc(hidden)]
pub fn kind(name: &str) -> Option<&'static ModelKind> {
    MODELS.iter().copied().find(|kind| kind.name == name)
}

choices!(Precision { F32 = "f32", F64 = "f64" });

/// Evaluation metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
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
#[doc(hidden)]
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

    /// The parameters of the last layer that has weights.
    pub(crate) fn last_layer(&self) -> Vec<std::ops::Range<usize>> {
        let layer =
            |tensor: &TensorPlace| tensor.name.rsplit_once('.').map_or(String::new(), |(layer, _)| layer.to_string());
        let last = self.tensors.iter().rev().find(|tensor| tensor.name.ends_with(".weight")).map(layer);
        let of_it = |tensor: &&TensorPlace| Some(layer(tensor)) == last;
        self.tensors.iter().filter(of_it).map(TensorPlace::range).collect()
    }

    /// The parameters and statistics of normalisation.
    pub(crate) fn normalisation(&self) -> Vec<std::ops::Range<usize>> {
        let is_part = |tensor: &&TensorPlace| {
            [".scale", ".shift", ".mean", ".variance"].iter().any(|part| tensor.name.ends_with(part))
        };
        self.tensors.iter().filter(is_part).map(TensorPlace::range).collect()
    }
}

/// A model: a layout, initial parameters, and workers that compute with it.
#[doc(hidden)]
pub trait Model: Send + Sync {
    /// Its tensors.
    fn layout(&self) -> &Layout;

    /// The precision it computes in and is sent in.
    fn precision(&self) -> Precision;

    /// Number of values in a row that it reads; 0 where rows are no numbers.
    fn columns(&self) -> usize {
        0
    }

    /// Number of classes that it tells apart; 0 where its target is a number or it has none.
    fn classes(&self) -> usize {
        0
    }

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
    fn worker(&self, models: &[&[f64]]) -> Box<dyn Worker>;

    /// The number or the class that it predicts for each row, whatever the rows' targets.
    fn predict(&self, params: &[f64], rows: &Shard) -> Result<Vec<f64>> {
        let _ = (params, rows);
        Err(Error::new(ErrorKind::Unsupported, "this model predicts no target"))
    }

    /// The number that it predicts for each row, or the probability of every class, whatever the rows' targets.
    #[doc(hidden)]
    fn expectations(&self, params: &[f64], rows: &Shard) -> Result<Vec<f64>> {
        let _ = (params, rows);
        Err(Error::new(ErrorKind::Unsupported, "this model predicts no target"))
    }

    /// Exact solutions and second derivatives, of a convex loss.
    fn convex(&self) -> Option<&dyn Convex> {
        None
    }

    /// How it is linear in its parameters, but for a link.
    fn linear_form(&self) -> Option<LinearForm> {
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

    /// What it is made of, where another device can compute with it.
    fn architecture(&self) -> Option<Architecture> {
        None
    }

    /// Size of what is cached about so many training rows.
    fn prepared_numbers(&self, rows: usize) -> usize {
        rows * rows
    }
}

/// A model that is linear in its parameters, but for a link: one sum for a number, or one for the log-odds of each class against the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)]
pub struct LinearForm {
    /// What is predicted.
    pub(crate) response: Response,
    /// Columns of the data.
    pub(crate) slopes: usize,
    /// Whether a constant is added.
    pub(crate) intercept: bool,
    /// How many sums the model has: one more than there are equations where the first class has one too.
    pub(crate) outputs: usize,
}

impl LinearForm {
    /// Coefficients of one equation: the slopes, and the intercept behind them.
    pub(crate) fn width(self) -> usize {
        self.slopes + usize::from(self.intercept)
    }

    /// Coefficients of all equations.
    pub(crate) fn coefficients(self) -> usize {
        self.width() * self.response.equations()
    }

    /// The model's parameters: all weights, then all intercepts.
    pub(crate) fn parameters(self, coefficients: &[f64]) -> Vec<f64> {
        let first = self.outputs - self.response.equations();
        let mut parameters = vec![0.0; self.outputs * self.width()];
        let (weights, intercepts) = parameters.split_at_mut(self.outputs * self.slopes);
        for (equation, own) in coefficients.chunks_exact(self.width().max(1)).enumerate() {
            let output = first + equation;
            weights[output * self.slopes..(output + 1) * self.slopes].copy_from_slice(&own[..self.slopes]);
            intercepts.iter_mut().skip(output).zip(&own[self.slopes..]).for_each(|(to, from)| *to = *from);
        }
        parameters
    }
}

/// A model whose loss is convex and twice differentiable, with an exact minimiser.
#[doc(hidden)]
pub trait Convex {
    /// Parameters with the smallest mean loss plus ½·ridge·‖θ‖².
    fn minimise(&self, rows: &Shard, ridge: f64) -> Result<Vec<f64>>;

    /// Such parameters with noise that hides any single row, each cut to public bounds.
    fn minimise_hidden(&self, rows: &Shard, ridge: f64, hidden: &mut HiddenAnswer) -> Result<Vec<f64>>;

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
