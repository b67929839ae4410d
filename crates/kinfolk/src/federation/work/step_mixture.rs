//! Steps of EM, or of gradient EM, on a client's own rows.
//!
//! A model of the ask replaces as many of the client's first parameters as it has: centres alone, centres with their
//! scatter, or all. So centres travel, and mixing weights need never leave a client.

use super::fit_mixture::{Fitted, Parts, implausible, smallest};
use super::*;
use crate::data::Client;
use crate::error::ErrorKind;
use crate::mixture::step::{Rule, Step};
use crate::mixture::{expect, expect_hidden, maximise, relabel};
use rand::seq::index;

/// Take steps of EM, or of gradient EM, on the client's own rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepMixture {
    /// The shape of the mixture.
    pub shape: Shape,
    /// The stamp of the client's state; without, the model has all parameters and no state is written.
    pub from: Option<u64>,
    /// A model of the ask that replaces the first parameters.
    pub model: Option<usize>,
    /// The new order of the client's components, which is the model's; empty for no change.
    pub relabel: Vec<u32>,
    /// What a step is.
    pub step: Step,
    /// Number of steps.
    pub steps: u32,
    /// Rows of a step.
    pub sample: Sample,
    /// Upper bound on the length by which a row pulls at a component.
    pub limit: Option<f64>,
    /// What is sent of the result.
    pub send: Parts,
}

impl StepMixture {
    /// Whether it fits the clients' mixture: a start of a possible length, a permutation of components, and some rows.
    fn is_sound(&self, own: &Shape, models: &[Vec<f64>]) -> bool {
        let mut order = self.relabel.clone();
        order.sort_unstable();
        let permutation = order.is_empty() || order.iter().copied().eq(0..own.components as u32);
        let length = self.model.map(|model| models.get(model).map_or(0, Vec::len));
        let begins = match (self.from, length) {
            (None, length) => length == Some(own.len()),
            (Some(_), Some(length)) => [own.centres().end, own.scatter().end, own.len()].contains(&length),
            (Some(_), None) => self.step.rule != Rule::Contest,
        };
        // Batches are drawn from all rows: a portion would be checked by the guard and then not be kept to.
        let rows = self.sample.batch != Some(0) && self.sample.on == Portion::All;
        self.shape == *own && permutation && begins && rows && self.step.share.is_finite()
    }
}

/// Whether an E-step sums products of rows.
fn has_squares(shape: &Shape, detail: Detail) -> bool {
    Statistics::packed_len(shape, detail) > Statistics::packed_len(shape, Detail::Gradient)
}

/// The rows of a step; `None` for all of them.
fn draw(sample: &Sample, client: &Client, step: u32) -> Option<Vec<u32>> {
    let rows = client.train.len();
    let batch = sample.batch.map(|batch| batch as usize).filter(|&batch| batch < rows)?;
    let key = Key::new(sample.seed).word("rows").word(&client.id).number(u64::from(step));
    let mut picked: Vec<u32> = index::sample(&mut key.rng(), rows, batch).iter().map(|row| row as u32).collect();
    picked.sort_unstable();
    Some(picked)
}

impl Telling for StepMixture {
    const TELLS: Tells = Tells::numbers("how likely its rows are, and the smallest weight of a component")
        .with_vector("its mixture after the step, or sums of its rows by component")
        .with_counts("whether the step came to an end");
}

impl Kind for StepMixture {
    fn needs(&self) -> Needs<'_> {
        Needs::new(self.model.as_slice(), Capability::Mixture).stamp(self.from).keeping(self.from.is_some())
    }

    fn sends(&self, _: usize) -> Sends {
        self.send.sends(&self.shape)
    }

    fn cost(&self, load: &Load) -> Cost {
        load.mixes(&self.shape, f64::from(self.steps))
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        context.guard.components(&self.shape)?;
        let sample = context.guard.sample(&self.sample, false)?;
        let shape = context.shape()?;
        if !self.is_sound(&shape, context.models) {
            return Err(context.unsound("a step"));
        }
        let length = shape.len();
        let whole = length + shape.components;
        let sent = |vectors: &[f64]| match self.send {
            Parts::Nothing => None,
            Parts::Statistics(_) => Some(vectors[whole..].to_vec()),
            parts => Some(vectors[..parts.count(&shape)].to_vec()),
        };
        if self.from.is_some()
            && let Some(numbers) = context.numbers_of(context.stamp)
        {
            // This order has been carried out, and its answer got lost.
            let vectors = context.own_vectors(context.stamp)?;
            let answer = Fitted { loss: numbers[0], smallest_weight: numbers[1], converged: true };
            return Ok(context.reply(answer, sent(&vectors)));
        }
        let mut vectors = match self.from {
            Some(stamp) => context.own_vectors(stamp)?,
            None => vec![0.0; whole],
        };
        if vectors.len() == length {
            // A mixture that the client was handed: it begins with these weights.
            vectors.extend_from_within(shape.weights());
        }
        vectors.resize(whole, 0.0);
        if !self.relabel.is_empty() {
            let (params, first) = vectors.split_at_mut(length);
            relabel(&shape, params, &self.relabel);
            let old = first.to_vec();
            first.iter_mut().zip(&self.relabel).for_each(|(first, &from)| *first = old[from as usize]);
        }
        let rule = self.step.rule;
        let mut rival = None;
        if rule == Rule::Contest {
            let mut begin = vectors.clone();
            if let Some(model) = self.model {
                begin[..context.models[model].len()].copy_from_slice(&context.models[model]);
            }
            begin[shape.weights()].fill(1.0 / shape.components as f64);
            rival = Some(begin);
        } else if let Some(model) = self.model {
            vectors[..context.models[model].len()].copy_from_slice(&context.models[model]);
        }
        let detail = match (rule, self.send) {
            (Rule::Maximise | Rule::Contest, _) => Detail::Full,
            (_, Parts::Statistics(detail)) => detail,
            _ => Detail::Gradient,
        };
        let mut hidden = context.guard.answer(u64::from(self.steps))?;
        if hidden.is_some() && has_squares(&shape, detail) {
            let message =
                "the M-step of this mixture needs sums of products of the rows' columns, which are not hidden";
            return Err(Error::new(ErrorKind::Unsupported, message).hint("use a method that takes gradient steps"));
        }
        let (seat, least) = (context.seat(), context.guard.minimum());
        let all = match hidden {
            Some(_) => Cow::Owned(Rows::uncentred(&shape, &seat.client.train)),
            None => context.mixture_rows(&seat, &shape),
        };
        let Some(scratch) = context.worker.scratch() else {
            return Err(Error::federation("the clients' model is not a mixture"));
        };
        // Components must not reveal fewer rows than an answer may be about.
        let withhold = |statistics: &mut Statistics| {
            if let Some(least) = least {
                statistics.withhold(&shape, least as f64);
            }
        };
        let mut statistics = Statistics::default();
        for step in 0..self.steps {
            let drawn = draw(&sample, seat.client, step).map(|picked| all.pick(&picked));
            let rows = drawn.as_ref().unwrap_or(&all);
            let (params, first) = vectors.split_at_mut(length);
            match &mut hidden {
                None => expect(&shape, params, rows, detail, self.limit, scratch, &mut statistics),
                Some(hidden) => {
                    let deviation = expect_hidden(&shape, params, rows, hidden, scratch, &mut statistics);
                    if rule == Rule::Maximise {
                        // Components that do not stand out of the noise stay where they are.
                        statistics.withhold(&shape, 2.0 * deviation);
                    }
                }
            }
            withhold(&mut statistics);
            if rule != Rule::Stay || self.from.is_some() {
                let seen = hidden.is_none().then_some(rows);
                self.step.take(&shape, &statistics, seen, first, params);
            }
            if let Some(rival) = &mut rival {
                let likelihood = statistics.log_likelihood;
                expect(&shape, &rival[..length], rows, detail, self.limit, scratch, &mut statistics);
                withhold(&mut statistics);
                maximise(&shape, &statistics, &mut rival[..length]);
                if step + 1 == self.steps && statistics.log_likelihood > likelihood {
                    vectors.copy_from_slice(rival);
                } else {
                    statistics.log_likelihood = likelihood;
                }
            }
        }
        if rule == Rule::Contest {
            let weights = vectors[shape.weights()].to_vec();
            vectors[length..].copy_from_slice(&weights);
        }
        let loss = match self.steps {
            0 => 0.0,
            _ => -statistics.log_likelihood / statistics.rows,
        };
        let answer = Fitted { loss, smallest_weight: smallest(&vectors[shape.weights()]), converged: true };
        if let Parts::Statistics(_) = self.send {
            statistics.pack(&mut vectors);
        }
        let reply = context.reply(answer, sent(&vectors));
        if self.from.is_some() {
            context.keep(&reply.numbers, vectors)?;
        }
        Ok(reply)
    }

    fn implausible(&self, reply: &Reply, least_loss: f64) -> Option<String> {
        implausible(reply, least_loss)
    }

    fn hides_rows(&self) -> bool {
        self.sample.batch.is_none() && self.step.rule != Rule::Contest && self.limit.is_none()
    }

    fn base(&self, _: &Reply) -> Option<usize> {
        self.model
    }
}
