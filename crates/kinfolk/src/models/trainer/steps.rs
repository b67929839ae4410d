//! Steps as every trained model takes them: how many, on which rows, and what the optimiser makes of a gradient.

use crate::num::{Real, add_scaled, dispatch};
use crate::rng::{Key, Rng};
use crate::training::{Amount, Optimiser, Plan, Sample};
use rand::seq::SliceRandom;

/// How many steps a plan means for so many rows in batches of this size.
pub(in crate::models) fn steps_of(plan: &Plan, rows: usize, batch: usize) -> usize {
    match plan.amount {
        Amount::Steps(steps) => steps as usize,
        Amount::Epochs(epochs) => epochs as usize * rows.div_ceil(batch.max(1)),
    }
}

/// Gradient and moments of one training, reused from step to step.
#[derive(Default)]
pub(in crate::models) struct Scratch<T> {
    pub(in crate::models) gradient: Vec<T>,
    /// Velocity of descent, or Adam's first moment.
    first: Vec<T>,
    /// Adam's second moment.
    second: Vec<T>,
    /// The first weight's velocity in the Gram form.
    pub(in crate::models) velocity: Vec<T>,
    steps: i32,
}

impl<T: Real> Scratch<T> {
    pub(in crate::models) fn begin(&mut self, width: usize) {
        self.gradient.resize(width, T::ZERO);
        self.first.clear();
        self.second.clear();
        self.steps = 0;
    }

    /// Whether the gradient, with the plan's weight decay, is within its tolerance.
    pub(in crate::models) fn within(&self, plan: &Plan, params: &[T]) -> bool {
        if plan.course.tolerance == 0.0 {
            return false;
        }
        let (Optimiser::Descent { weight_decay, .. } | Optimiser::Adam { weight_decay }) = plan.optimiser;
        let whole = |(&g, &p): (&T, &T)| g.to_f64() + weight_decay * p.to_f64();
        let square: f64 = self.gradient.iter().zip(params).map(whole).map(|g| g * g).sum();
        square.sqrt() <= plan.course.tolerance
    }

    /// Adds the plan's terms to the gradient: strength·(θ − centre) for each of its centres, and its tilt. Without those of
    /// frozen parameters.
    pub(in crate::models) fn add_terms(&mut self, plan: &Plan, models: &[Vec<T>], params: &[T]) {
        for pull in &plan.terms.pulls {
            let strength = T::of(pull.strength);
            for ((g, &p), &c) in self.gradient.iter_mut().zip(params).zip(&models[pull.centre]) {
                *g += strength * (p - c);
            }
        }
        if let Some(tilt) = plan.terms.tilt {
            self.gradient.iter_mut().zip(&models[tilt]).for_each(|(g, &tilt)| *g += tilt);
        }
        for range in &plan.terms.frozen {
            let end = range.end.min(self.gradient.len());
            self.gradient[range.start.min(end)..end].fill(T::ZERO);
        }
    }

    /// One step of the optimiser along `self.gradient`.
    pub(in crate::models) fn apply(&mut self, optimiser: Optimiser, length: f64, params: &mut [T]) {
        let step = T::of(length);
        self.steps += 1;
        match optimiser {
            Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 } => add_scaled(params, -step, &self.gradient),
            Optimiser::Descent { momentum, weight_decay } => {
                self.first.resize(params.len(), T::ZERO);
                let (momentum, decay) = (T::of(momentum), T::of(weight_decay));
                dispatch!(|_| for ((p, &g), v) in params.iter_mut().zip(&self.gradient).zip(&mut self.first) {
                    *v = momentum * *v + g + decay * *p;
                    *p -= step * *v;
                });
            }
            Optimiser::Adam { weight_decay } => {
                const FORGET_FIRST: f64 = 0.9;
                const FORGET_SECOND: f64 = 0.999;
                self.first.resize(params.len(), T::ZERO);
                self.second.resize(params.len(), T::ZERO);
                let (keep_first, keep_second) = (T::of(FORGET_FIRST), T::of(FORGET_SECOND));
                let root = (1.0 - FORGET_SECOND.powi(self.steps)).sqrt();
                let rate = T::of(length * root / (1.0 - FORGET_FIRST.powi(self.steps)));
                let floor = T::of(1e-8 * root);
                let decay = T::of(weight_decay);
                let moments = self.first.iter_mut().zip(&mut self.second);
                dispatch!(|_| for ((p, &g), (m, v)) in params.iter_mut().zip(&self.gradient).zip(moments) {
                    let g = g + decay * *p;
                    *m = keep_first * *m + (T::ONE - keep_first) * g;
                    *v = keep_second * *v + (T::ONE - keep_second) * g * g;
                    *p -= rate * *m / (v.sqrt() + floor);
                });
            }
        }
    }
}

/// Batches without replacement, reshuffled every pass.
pub(in crate::models) struct Batches {
    order: Vec<u32>,
    next: usize,
    pub(in crate::models) size: usize,
    rng: Option<Rng>,
}

impl Batches {
    pub(in crate::models) fn new(rows: usize, sample: &Sample, client: &str) -> Self {
        let size = sample.batch.map_or(rows, |batch| (batch as usize).min(rows)).max(1);
        let whole = size >= rows;
        let rng = (!whole).then(|| Key::new(sample.seed).word("batches").word(client).rng());
        let order = if whole { Vec::new() } else { (0..rows as u32).collect() };
        Self { next: order.len(), order, size, rng }
    }

    /// The rows of the next batch; `None` means all.
    pub(in crate::models) fn next(&mut self) -> Option<&[u32]> {
        let rng = self.rng.as_mut()?;
        if self.next >= self.order.len() {
            self.order.shuffle(rng);
            self.next = 0;
        }
        let begin = self.next;
        self.next = (begin + self.size).min(self.order.len());
        Some(&self.order[begin..self.next])
    }
}
