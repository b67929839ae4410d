//! What a kind of work says of itself: all that engines, meter and checks know of it.

use super::*;
use crate::models::Step;
use std::fmt::Debug;

/// A kind of work: what it needs, what a client does, what comes back.
pub trait Kind: Debug + Send + Sync {
    fn needs(&self) -> Needs<'_>;

    /// What a client sends, where a model has `width` parameters.
    fn sends(&self, width: usize) -> Sends;

    /// Whether it sends a vector, whatever the model.
    fn sends_vector(&self) -> bool {
        self.sends(1).length > 0
    }

    /// Upper bound on what it costs a client.
    fn cost(&self, load: &Load) -> Cost;

    /// What a client does; by default its step.
    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let found = context.find(self.step().expect("work is a step, or says how it is carried out"))?;
        Ok(Reply::of(context.client().train.len() as u32, found, self.tells_choice()))
    }

    /// Why the order is malformed, whoever gets it.
    fn fault(&self) -> Option<&'static str> {
        None
    }

    /// Why a complete reply cannot be true; no loss is below `least_loss`.
    fn implausible(&self, reply: &Reply, least_loss: f64) -> Option<String> {
        reply::below(&reply.numbers, least_loss)
    }

    /// How many numbers of a reply are added up where nothing of a single client leaves; `None` for answers whose sums say nothing.
    fn summable(&self) -> Option<usize> {
        let sends = self.sends(1);
        (sends.counts == usize::from(self.tells_choice())).then_some(sends.numbers)
    }

    /// These numbers of a complete reply.
    fn to_sum<'r>(&self, reply: &'r Reply) -> Cow<'r, [f64]> {
        Cow::from(&reply.numbers)
    }

    /// The loss by which a reply is compared with those of other clients.
    fn loss(&self, reply: &Reply) -> Option<f64> {
        reply.numbers.iter().copied().reduce(reply::larger)
    }

    /// The model of the ask from which the reply's vector is an update.
    fn base(&self, _: &Reply) -> Option<usize> {
        None
    }

    /// The step that does the same for whole blocks of clients, where there is one.
    fn step(&self) -> Option<Step<'_>> {
        None
    }

    /// Whether it can be done so that nothing tells of a single row: by noised steps and drawn choices.
    fn hides_rows(&self) -> bool {
        false
    }

    /// Whether it tells how well models do, and nothing else.
    fn scores(&self) -> bool {
        false
    }

    /// Whether the choice is part of the answer.
    fn tells_choice(&self) -> bool {
        false
    }
}

#[derive(Debug, Clone)]
pub struct Needs<'a> {
    /// Indices in the ask.
    pub models: Cow<'a, [usize]>,
    /// The stamp of the client's state.
    pub stamp: Option<u64>,
    pub portions: Vec<Portion>,
    pub capability: Capability,
    pub keeps: bool,
    /// Number of parameters that its models are without.
    pub without: usize,
}

impl<'a> Needs<'a> {
    pub(super) fn new(models: impl Into<Cow<'a, [usize]>>, capability: Capability) -> Self {
        Self { models: models.into(), stamp: None, portions: Vec::new(), capability, keeps: false, without: 0 }
    }

    pub(super) fn on(mut self, portion: Portion) -> Self {
        self.portions.push(portion);
        self
    }

    pub(super) fn stamp(mut self, stamp: Option<u64>) -> Self {
        self.stamp = stamp;
        self
    }

    pub(super) fn without(mut self, parameters: usize) -> Self {
        self.without = parameters;
        self
    }

    pub(super) fn keeping(mut self, keeps: bool) -> Self {
        self.keeps = keeps;
        self
    }
}

/// What a model must be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Give losses.
    Any,
    /// Be trained by descent.
    Descent,
    /// Be trained by gradients outside of a training plan.
    Gradients,
    Mixture,
}

/// The parts of a client's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sends {
    pub content: Content,
    /// Length of the vector; 0 for none.
    pub length: usize,
    /// Number of models that the meter counts it as.
    pub models: usize,
    pub numbers: usize,
    pub counts: usize,
}

/// What a vector is, which decides how long it may be compared with those of other clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Nothing,
    Trained,
    Gradient,
    Minimiser,
    /// Sums over the rows, or several vectors.
    Statistics,
}

impl Sends {
    pub(super) fn numbers(numbers: usize) -> Self {
        Self { content: Content::Nothing, length: 0, models: 0, numbers, counts: 0 }
    }

    pub(super) fn with_counts(self, counts: usize) -> Self {
        Self { counts, ..self }
    }

    /// Adds a model or a gradient, if it is `sent`.
    pub(super) fn model(self, content: Content, width: usize, sent: bool) -> Self {
        if sent { Self { content, length: width, models: 1, ..self } } else { self }
    }
}
