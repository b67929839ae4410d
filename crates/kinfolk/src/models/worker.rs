//! What a model computes for clients on one thread: single steps, and sums over blocks of clients.

use super::*;
use crate::aggregate::{By, Sum, Weight};
use crate::mixture::Scratch;
use crate::training::{Split, Then};
use rand::seq::SliceRandom;
use std::any::Any;
use std::borrow::Cow;
use std::sync::OnceLock;

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
    fn fold(&self, index: u32, of: u32, inside: bool) -> Vec<usize> {
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
        rows
    }

    /// Some of the client's training rows: a part of them as they lie, or which ones.
    fn chosen(&self, on: Portion) -> std::result::Result<Shard, Vec<usize>> {
        match on {
            Portion::All => Ok(self.client.train.clone()),
            Portion::Part { index, of } if self.secret.is_none() => {
                Ok(self.client.train.part(index as usize, of as usize))
            }
            Portion::Part { index, of } | Portion::Fold { index, of } => Err(self.fold(index, of, true)),
            Portion::Others { index, of } => Err(self.fold(index, of, false)),
            Portion::Earlier { of } if self.secret.is_none() => Ok(self.client.train.before_last(of as usize)),
            Portion::Earlier { of } => Err(self.fold(of.saturating_sub(1), of, false)),
        }
    }

    pub(crate) fn rows(&self, on: Portion) -> Shard {
        self.chosen(on).unwrap_or_else(|rows| self.client.train.pick(&rows))
    }

    /// The same rows by their places in the storage of the client's training rows.
    pub fn places(&self, on: Portion) -> Vec<u32> {
        let begin = self.client.train.rows().start;
        match self.chosen(on) {
            Ok(rows) => rows.rows().map(|row| row as u32).collect(),
            Err(rows) => rows.into_iter().map(|row| (begin + row) as u32).collect(),
        }
    }
}

/// What a client computes with the models of an ask, which are named by index.
#[derive(Debug, Clone)]
pub enum Step<'a> {
    /// The mean loss of each of these models.
    Losses {
        /// The models.
        of: &'a [usize],
        /// The rows.
        on: Portion,
    },
    /// The best of some models, and what follows from it.
    Choose(Choosing<'a>),
    /// The score of the best of some models on held-out rows.
    Score {
        /// The candidates.
        among: &'a [usize],
        /// The rows that decide between them.
        assign_on: Split,
        /// Whether the loss of every candidate is wanted, not only that of the best.
        compare: bool,
    },
}

/// The choice of the model with the smallest loss, and what follows from it.
#[derive(Debug, Clone)]
pub struct Choosing<'a> {
    /// The candidates. A single one is not compared with anything.
    pub among: &'a [usize],
    /// The rows they compete on.
    pub on: Portion,
    /// What follows.
    pub then: Cow<'a, Then>,
}

/// What a step found for one client.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// The mean losses.
    Losses(Vec<f64>),
    /// The chosen model, and the gradient or the trained model.
    Choice(Choice, Option<Vec<f64>>),
    /// The position of the best candidate, its loss or those of all, and its score.
    Score(usize, Vec<f64>, Score),
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
pub trait Worker: Send {
    /// Takes over the models of an ask; buffers are kept from one ask to the next.
    fn begin(&mut self, models: &[&[f64]]);

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

    /// The gradient of Σ weight·loss / n over n of the client's training rows, or all of them, into `out`; returns the mean loss without
    /// weights. One weight for each of these rows.
    fn weighted_slope(
        &mut self,
        params: &[f64],
        seat: &Seat,
        rows: Option<&[u32]>,
        weights: &[f64],
        out: &mut [f64],
    ) -> f64 {
        let all: Vec<u32>;
        let rows = match rows {
            Some(rows) => rows,
            None => {
                all = (0..seat.client.train.len() as u32).collect();
                &all
            }
        };
        let (mut own, mut loss) = (vec![0.0; out.len()], 0.0);
        out.fill(0.0);
        for (row, weight) in rows.iter().zip(weights) {
            loss += self.slope(params, seat, Some(std::slice::from_ref(row)), &mut own) / rows.len() as f64;
            crate::num::add_scaled(out, weight / rows.len() as f64, &own);
        }
        loss
    }

    /// The error raised by a custom client since the last call; whatever was computed after it is void.
    fn failure(&mut self) -> Option<Error> {
        None
    }

    /// Scratch memory for mixtures, where the model is one.
    fn scratch(&mut self) -> Option<&mut Scratch> {
        None
    }

    /// The candidate with the smallest loss, ties to the first. `hint` is evaluated first, which only affects speed.
    fn choose(&mut self, among: &[usize], hint: usize, rows: &Shard) -> Choice {
        let _ = hint;
        first_smallest(self.losses(among, rows).into_iter())
    }

    /// Choices and sums over a block of clients, for steps that all go to the same clients.
    /// `hints` holds the previous choice of every seat and step, and is updated.
    ///
    /// This loop is the plain path; a model may compute the same sums without forming single vectors.
    fn reduce(&mut self, steps: &[&Choosing], seats: &[Seat], hints: &mut [u32], summing: Summing) -> Vec<Reduced> {
        reduce_plainly(self, steps, seats, hints, summing)
    }

    /// The choice of a step; a single candidate needs no evaluation.
    fn choose_for(&mut self, step: &Choosing, hint: usize, seat: &Seat) -> Choice {
        match step.among {
            [_] if *step.then != Then::Nothing => Choice { position: 0, loss: f64::NAN },
            among => self.choose(among, hint, &seat.rows(step.on)),
        }
    }
}

impl dyn Worker + '_ {
    /// What a step finds for one client. `hint` is its last choice, and is updated.
    pub fn take(&mut self, step: &Step, seat: &Seat, hint: &mut u32) -> Found {
        match step {
            Step::Losses { of, on } => Found::Losses(self.losses(of, &seat.rows(*on))),
            Step::Choose(step) => {
                let mut vector = vec![0.0; if *step.then == Then::Nothing { 0 } else { self.width() }];
                let choice = follow(self, step, seat, hint, &mut vector);
                Found::Choice(choice, (*step.then != Then::Nothing).then_some(vector))
            }
            Step::Score { among, assign_on, compare } => {
                let Client { train, test, .. } = seat.client;
                let deciding = if *assign_on == Split::Test && !test.is_empty() { test } else { train };
                let (position, losses) = if *compare {
                    let losses = self.losses(among, deciding);
                    (first_smallest(losses.iter().copied()).position, losses)
                } else {
                    let choice = self.choose(among, *hint as usize, deciding);
                    *hint = choice.position as u32;
                    (choice.position, vec![choice.loss])
                };
                Found::Score(position, losses, self.score(among[position], test))
            }
        }
    }
}

/// Chooses, and writes what follows into `vector`.
fn follow<W: Worker + ?Sized>(
    worker: &mut W,
    step: &Choosing,
    seat: &Seat,
    hint: &mut u32,
    vector: &mut [f64],
) -> Choice {
    let choice = worker.choose_for(step, *hint as usize, seat);
    *hint = choice.position as u32;
    let model = step.among[choice.position];
    let first_loss = match &*step.then {
        Then::Nothing => choice.loss,
        Then::Gradient(sample) => worker.gradient(model, seat, sample, vector),
        Then::Train(plan) => worker.train(model, seat, plan, vector),
    };
    Choice { loss: if step.among.len() == 1 { first_loss } else { choice.loss }, ..choice }
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

/// [`Worker::reduce`] client by client, step by step.
pub(super) fn reduce_plainly<W: Worker + ?Sized>(
    worker: &mut W,
    steps: &[&Choosing],
    seats: &[Seat],
    hints: &mut [u32],
    summing: Summing,
) -> Vec<Reduced> {
    let mut vector = vec![0.0; worker.width()];
    let mut reduced: Vec<Reduced> = steps.iter().map(|step| Reduced::new(summing.slots(step))).collect();
    for (seat, hints) in seats.iter().zip(hints.chunks_exact_mut(steps.len())) {
        for ((step, hint), reduced) in steps.iter().zip(hints).zip(&mut reduced) {
            let choice = follow(worker, step, seat, hint, &mut vector);
            reduced.reply(choice.position, choice.loss);
            if *step.then != Then::Nothing {
                reduced.add(summing.slot(choice.position), summing.weight.of(seat.client.train.len()), &vector);
            }
        }
    }
    reduced
}

/// How the vectors of several clients are summed.
#[derive(Debug, Clone, Copy)]
pub struct Summing {
    /// What has a sum of its own.
    pub by: By,
    /// What each client counts.
    pub weight: Weight,
}

impl Summing {
    pub(crate) fn slots(self, step: &Choosing) -> usize {
        if self.by == By::Choice { step.among.len() } else { 1 }
    }

    pub(crate) fn slot(self, position: usize) -> usize {
        if self.by == By::Choice { position } else { 0 }
    }
}

/// What a block of clients answered to one step.
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
