//! Updates of the vectors that a client keeps between asks, the first of which is its own model.
//!
//! There are two kinds: a [`Blend`] mixes them with each other and with models of the ask, which is all that averaging ever
//! does to a client; a [`Run`] takes steps down the client's own loss. Both come in one order, so that a run of local steps,
//! however long, is one message. The method decides what each vector means: the order names them by position.

use super::*;
use crate::models::accelerated::accelerate;
use crate::models::{Seat, Worker};
use crate::num::{add_scaled, dot};
use crate::training::{Amount, Course, Optimiser, Terms};

const MOST_VECTORS: usize = 4;

/// The client's vectors are blended, then stepped; some of them are sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advance {
    /// The client's own vectors, or a model at which all of them begin.
    pub from: Start,
    /// Number of vectors it keeps.
    pub vectors: u32,
    /// What happens to them first.
    pub blend: Option<Blend>,
    /// The vector whose squared length is measured after the blend.
    pub measured: Option<u32>,
    /// Steps after that.
    pub run: Option<Run>,
    /// What happens at the end.
    pub renewal: Option<Renewal>,
    /// What is sent: linear combinations of the vectors, concatenated.
    pub send: Vec<Vec<f64>>,
    /// How the client's loss enters the method's objective.
    pub scale: Scale,
}

/// vectors ← matrix · vectors + models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blend {
    /// Row-major, `vectors` × `vectors`.
    pub matrix: Vec<f64>,
    /// Models that are added to vectors.
    pub add: Vec<Addend>,
}

/// A multiple of a model that is added to a vector.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Addend {
    /// The vector.
    pub to: u32,
    /// The model of the ask.
    pub model: usize,
    /// The factor.
    pub times: f64,
}

/// Steps down the client's own loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Number of steps.
    pub steps: u32,
    /// Step size for the scaled loss.
    pub step: f64,
    /// The rows of every step.
    pub sample: Sample,
    /// Accelerated, variance-reduced steps; without, plain descent of the first vector.
    pub acceleration: Option<Acceleration>,
}

/// The first vector and the gradient there replace two others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// Where the vector goes.
    pub copy: u32,
    /// Where the gradient goes, scaled as the loss.
    pub gradient: u32,
}

/// Result of the updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Advanced {
    /// The loss at the first point that was evaluated.
    pub(crate) loss: f64,
    /// The squared length of the measured vector.
    pub(crate) squared_length: Option<f64>,
}

impl Answer for Advanced {
    fn read(_: &[u32], numbers: &[f64]) -> Self {
        Self { loss: numbers[0], squared_length: numbers.get(1).copied() }
    }

    fn write(self, _: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        numbers.push(self.loss);
        numbers.extend(self.squared_length);
    }
}

impl HasLoss for Advanced {}

impl Advance {
    /// The same order without any update: it asks for what the client holds already.
    pub(crate) fn at_rest(&self, stamp: u64) -> Self {
        Self { from: Start::Own { stamp }, blend: None, run: None, renewal: None, ..self.clone() }
    }

    fn moves_nothing(&self) -> bool {
        self.blend.is_none() && self.run.is_none() && self.renewal.is_none()
    }

    /// Whether all its positions are among the vectors.
    fn is_sound(&self) -> bool {
        let count = self.vectors as usize;
        let acceleration = self.run.as_ref().and_then(|run| run.acceleration);
        let named = self.measured.into_iter().chain(self.renewal.into_iter().flat_map(|it| [it.copy, it.gradient]));
        let named = named.chain(acceleration.into_iter().flat_map(|acceleration| acceleration.vectors));
        let distinct = |places: &[u32]| places.iter().enumerate().all(|(at, place)| !places[..at].contains(place));
        (1..=MOST_VECTORS).contains(&count)
            && named.into_iter().all(|place| place < self.vectors)
            && acceleration.is_none_or(|acceleration| distinct(&acceleration.vectors))
            // Accelerated steps draw from all rows: a portion would be checked by the guard and then not be kept to.
            && self.run.iter().all(|run| run.acceleration.is_none() || run.sample.on == Portion::All)
            && self.renewal.is_none_or(|renewal| distinct(&[0, renewal.copy, renewal.gradient]))
            && self.send.iter().all(|shares| shares.len() == count)
            && self.blend.as_ref().is_none_or(|blend| {
                blend.matrix.len() == count * count && blend.add.iter().all(|addend| addend.to < self.vectors)
            })
    }

    fn carry_through(&self, context: &mut ClientContext, run: Option<&Run>, vectors: &mut [f64]) -> Result<Advanced> {
        let (seat, width) = (context.seat(), context.worker.width());
        let scale = self.scale.of(seat.client.train.len());
        if let Some(blend) = &self.blend {
            blend.apply(context.models, vectors, width);
        }
        let measured = self.measured.and_then(|place| vectors.chunks_exact(width).nth(place as usize));
        let squared_length = measured.map(|vector| dot(vector, vector));
        let loss = match run {
            Some(run) => match &run.acceleration {
                Some(pace) => {
                    accelerate(context.worker, &seat, &run.sample, (run.steps, run.step, scale), pace, vectors)
                }
                None => descend(context.worker, &seat, run, scale, &mut vectors[..width]),
            },
            None => {
                let own = context.worker.load(&vectors[..width]);
                context.worker.loss(own, &seat.client.train)
            }
        };
        if let Some(renewal) = self.renewal {
            vectors.copy_within(..width, renewal.copy as usize * width);
            let mut all: Vec<&mut [f64]> = vectors.chunks_exact_mut(width).collect();
            if let Ok([anchor, gradient]) =
                all.get_disjoint_mut([renewal.copy, renewal.gradient].map(|place| place as usize))
            {
                context.worker.slope(anchor, &seat, None, gradient);
                gradient.iter_mut().for_each(|value| *value *= scale);
            }
        }
        // At the precision of the state: a repeated order must get the same answer.
        context.model().precision().round(vectors);
        Ok(Advanced { loss, squared_length })
    }
}

impl Telling for Advance {
    const TELLS: Tells = Tells::numbers("its mean loss, and how long a vector of its own is")
        .with_vector("combinations of the vectors it keeps, its own model among them");
}

impl Kind for Advance {
    fn needs(&self) -> Needs<'_> {
        let added = self.blend.iter().flat_map(|blend| &blend.add).map(|addend| addend.model);
        let models: Vec<usize> = self.from.model().into_iter().chain(added).collect();
        let needs = Needs::new(models, Capability::Gradients).stamp(self.from.stamp()).keeping(true);
        self.run.iter().fold(needs, |needs, run| needs.on(run.sample.on))
    }

    fn sends(&self, width: usize) -> Sends {
        let (models, length) = (self.send.len(), self.send.len() * width);
        let content = if models > 0 { Content::Statistics } else { Content::Nothing };
        Sends { content, length, models, ..Sends::numbers(1 + usize::from(self.measured.is_some())) }
    }

    fn cost(&self, load: &Load) -> Cost {
        let run = self.run.as_ref().map_or_else(Cost::default, |run| load.runs(f64::from(run.steps), &run.sample));
        let held = self.send.len() as f64 + f64::from(self.vectors);
        Cost { steps: run.steps, work: 2.0 * run.work + load.rows * load.width, numbers: held * load.width }
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let width = context.worker.width();
        let run = match &self.run {
            Some(run) => {
                Some(Run { sample: context.guard.sample(&run.sample, run.acceleration.is_none())?, ..run.clone() })
            }
            None => None,
        };
        // An order that has been carried out already, or that updates nothing, is answered from the state.
        let done = match self.from {
            Start::Own { stamp } if self.moves_nothing() => stamp,
            _ => context.stamp,
        };
        let (vectors, numbers) = match context.numbers_of(done) {
            Some(numbers) => (context.take_vectors(done, self.vectors)?, numbers),
            None => {
                let mut vectors = match self.from {
                    Start::Own { stamp } => context.take_vectors(stamp, self.vectors)?,
                    Start::Model(model) => context.models[model].repeat(self.vectors as usize),
                    Start::Fresh { .. } => return Err(Error::federation("vectors begin at a model, not afresh")),
                };
                let answer = self.carry_through(context, run.as_ref(), &mut vectors)?;
                (vectors, context.reply(answer, None).numbers)
            }
        };
        let mut sent = Vec::with_capacity(self.send.len() * width);
        for shares in &self.send {
            let begin = sent.len();
            sent.resize(begin + width, 0.0);
            for (&share, vector) in shares.iter().zip(vectors.chunks_exact(width)).filter(|(share, _)| **share != 0.0) {
                add_scaled(&mut sent[begin..], share, vector);
            }
        }
        context.keep(&numbers, vectors)?;
        Ok(context.reply(numbers, (!self.send.is_empty()).then_some(sent)))
    }

    fn fault(&self) -> Option<&'static str> {
        (!self.is_sound()).then_some("moves vectors that do not fit each other")
    }
}

impl Blend {
    fn apply(&self, models: &[Vec<f64>], vectors: &mut [f64], width: usize) {
        let count = vectors.len() / width;
        for place in 0..width {
            let mut old = [0.0; MOST_VECTORS];
            (0..count).for_each(|vector| old[vector] = vectors[vector * width + place]);
            for (vector, shares) in self.matrix.chunks_exact(count).enumerate() {
                vectors[vector * width + place] = shares.iter().zip(&old).map(|(share, old)| share * old).sum();
            }
        }
        for addend in &self.add {
            let vector = &mut vectors[addend.to as usize * width..][..width];
            add_scaled(vector, addend.times, &models[addend.model]);
        }
    }
}

/// Plain descent of a model. Returns the loss before the first step.
fn descend(worker: &mut dyn Worker, seat: &Seat, run: &Run, scale: f64, own: &mut [f64]) -> f64 {
    let plan = Plan {
        sample: run.sample.clone(),
        amount: Amount::Steps(run.steps),
        step: run.step * scale,
        optimiser: Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 },
        terms: Terms::default(),
        course: Course::PLAIN,
    };
    let start = worker.load(own);
    worker.train(start, seat, &plan, own)
}
