//! What one client works with to carry out one order: its rows, the ask's models, a worker to compute with, and its state.
//!
//! Kinds of work take parts and samples of the rows as the [`Guard`] allows.

use super::guard::Guard;
use super::host::{Equipment, Head, Host};
use crate::data::{Client, Shard};
use crate::error::{Error, Result};
use crate::federation::work::{Answer, Keep, Loss, Reply};
use crate::mixture::{Rows, Shape};
use crate::models::{Choice, Choosing, Found, Model, Packed, Precision, Seat, Step, Worker};
use crate::privacy::rows::RowPrivacy;
use crate::training::{Portion, Then};
use std::borrow::Cow;

/// What one client works with to carry out one order.
pub struct ClientContext<'a> {
    pub(super) host: &'a Host,
    pub(super) equipment: &'a Equipment,
    pub(super) order: usize,
    pub(super) client: u32,
    /// Protects the client's rows: what is drawn from them goes through it.
    pub(crate) guard: Guard<'a>,
    pub(crate) stamp: u64,
    pub(crate) worker: &'a mut dyn Worker,
    pub(crate) models: &'a [Vec<f64>],
}

impl<'a> ClientContext<'a> {
    pub(crate) fn client(&self) -> &'a Client {
        &self.host.clients()[self.client as usize]
    }

    /// The client, with what was precomputed from its rows.
    pub(crate) fn seat(&self) -> Seat<'a> {
        self.equipment.threads.seat(self.client, self.guard.secret())
    }

    /// What a step finds, as the guard allows it.
    pub(crate) fn find(&mut self, step: Step) -> Result<Found> {
        if let (Step::Choose(choosing), true) = (&step, self.guard.hiding.is_some()) {
            return self.find_hidden(choosing);
        }
        let (step, seat) = (self.guard.step(step)?, self.seat());
        Ok(self.equipment.threads.take(self.worker, &step, self.order, self.client, &seat))
    }

    /// A choice and what follows from it, without telling of single rows. Losses are not told.
    fn find_hidden(&mut self, step: &Choosing) -> Result<Found> {
        let (among, seat) = (step.among, self.seat());
        let Some(hiding) = self.guard.hiding.as_ref().filter(|_| among.len() > 1) else {
            return self.follow_hidden(step, 0, &seat);
        };
        let (worker, rows) = (&mut *self.worker, seat.rows(step.on));
        let fits = |privacy: &RowPrivacy| {
            let fit = |&model: &usize| match worker.score(model, &rows).hits.filter(|_| rows.classes().is_some()) {
                Some(hits) => f64::from(hits),
                None => {
                    let losses = worker.row_losses(model, &rows);
                    losses.iter().map(|loss| 1.0 - (loss / privacy.loss_cap).clamp(0.0, 1.0)).sum()
                }
            };
            among.iter().map(fit).collect()
        };
        let position = hiding.choose(among.len(), fits)?;
        self.follow_hidden(step, position, &seat)
    }

    fn follow_hidden(&mut self, step: &Choosing, position: usize, seat: &Seat) -> Result<Found> {
        let choice = Choice { position, loss: 0.0 };
        let Then::Train(plan) = &*step.then else { return Ok(Found::Choice(choice, None)) };
        let mut vector = vec![0.0; self.worker.width()];
        self.worker.train(step.among[position], seat, &self.guard.plan(plan)?, &mut vector);
        Ok(Found::Choice(choice, Some(vector)))
    }

    pub(crate) fn model(&self) -> &'a dyn Model {
        &**self.equipment.threads.model()
    }

    /// Some of the training rows, unless an answer about them would reveal single ones.
    pub(crate) fn rows(&self, on: Portion) -> Result<Shard> {
        self.guard.portion(on).map(|_| self.seat().rows(on))
    }

    pub(crate) fn reply(&self, answer: impl Answer, vector: Option<Vec<f64>>) -> Reply {
        Reply::new(self.client().train.len() as u32, answer, vector)
    }

    /// Makes errors name the client.
    pub(crate) fn naming(&self) -> impl Fn(Error) -> Error + use<'a> {
        let client = self.client();
        move |error| error.at(format!("client {}", client.id))
    }

    pub(crate) fn own_model(&self, stamp: u64) -> Result<Vec<f64>> {
        let (mut vectors, width) = (self.own_vectors(stamp)?, self.model().layout().len());
        // What a client keeps may be that of another model.
        if vectors.len() < width {
            let found = vectors.len();
            return Err(self.naming()(Error::federation(format!(
                "own model of {width} numbers wanted, found {found}"
            ))));
        }
        vectors.truncate(width);
        Ok(vectors)
    }

    /// A copy of the client's vectors with this stamp.
    pub(crate) fn own_vectors(&self, stamp: u64) -> Result<Vec<f64>> {
        match &*self.host.kept(self.client) {
            Some(head) if head.stamp == stamp => {
                Ok(self.equipment.roster.export(self.client).map_or_else(Vec::new, |vectors| vectors.unpack()))
            }
            found => Err(self.wrong_state(stamp, found.as_ref())),
        }
    }

    /// The same, if there are so many of them: another kind of work may have kept others.
    pub(crate) fn kept_vectors(&self, stamp: u64, count: usize) -> Result<Vec<f64>> {
        let (vectors, width) = (self.own_vectors(stamp)?, self.model().layout().len());
        if vectors.len() != count * width {
            let found = vectors.len() / width.max(1);
            return Err(self.naming()(Error::federation(format!("{count} vectors wanted, found {found}"))));
        }
        Ok(vectors)
    }

    /// The client's `count` vectors with this stamp, moved out of its state.
    pub(crate) fn take_vectors(&self, stamp: u64, count: u32) -> Result<Vec<f64>> {
        let width = self.model().layout().len();
        let mut kept = self.host.kept(self.client);
        match &*kept {
            Some(found) if found.stamp != stamp => Err(self.wrong_state(stamp, Some(found))),
            None => Err(self.wrong_state(stamp, None)),
            Some(found) if found.length != width * count as usize => {
                let found = found.length / width.max(1);
                Err(self.naming()(Error::federation(format!("{count} vectors wanted, found {found}"))))
            }
            Some(_) => {
                *kept = None;
                match self.equipment.roster.take(self.client) {
                    Some(Packed::F64(vectors)) => Ok(vectors),
                    packed => Ok(packed.map_or_else(Vec::new, |packed| packed.unpack())),
                }
            }
        }
    }

    fn wrong_state(&self, wanted: u64, found: Option<&Head>) -> Error {
        let found = found.map_or("none".to_string(), |head| format!("one of ask {}", head.stamp));
        self.naming()(Error::federation(format!("own model of ask {wanted} wanted, found {found}")))
    }

    /// The client's own model with a model of the ask in place of its first parameters.
    pub(crate) fn completed_model(&self, model: usize, stamp: u64) -> Result<Vec<f64>> {
        let mut params = self.own_model(stamp)?;
        let model = self.models.get(model).filter(|model| model.len() <= params.len());
        let model = model.ok_or_else(|| self.unsound("a model"))?;
        params[..model.len()].copy_from_slice(model);
        Ok(params)
    }

    /// The numbers answered when the state with this stamp was written. With the stamp of the ask itself: the order has been
    /// carried out already, and its answer got lost.
    pub(crate) fn numbers_of(&self, stamp: u64) -> Option<Vec<f64>> {
        self.host.kept(self.client).as_ref().filter(|head| head.stamp == stamp).map(|head| head.numbers.clone())
    }

    /// Writes the client's state: vectors, its own model first, and the numbers it answers.
    pub(crate) fn keep(&self, numbers: &[f64], vectors: Vec<f64>) -> Result<()> {
        let vectors = match self.model().precision() {
            Precision::F64 => Packed::F64(vectors),
            precision => Packed::pack(&vectors, precision),
        };
        let head = Head { stamp: self.stamp, numbers: numbers.to_vec(), length: vectors.len() };
        self.equipment.roster.import(self.client, vectors);
        *self.host.kept(self.client) = Some(head);
        Ok(())
    }

    /// A client's new model: kept as its own, or sent.
    pub(crate) fn keep_or_send(&self, keep: Keep, loss: f64, vector: Vec<f64>) -> Result<Reply> {
        let vector = match keep {
            Keep::No => Some(vector),
            Keep::Instead => self.keep(&[loss], vector).map(|()| None)?,
            Keep::Also => self.keep(&[loss], vector.clone()).map(|()| Some(vector))?,
        };
        Ok(self.reply(Loss(loss), vector))
    }

    pub(crate) fn shape(&self) -> Result<Shape> {
        self.model().mixture().copied().ok_or_else(|| Error::federation("the clients' model is not a mixture"))
    }

    pub(crate) fn mixture_rows<'s>(&self, seat: &'s Seat, shape: &Shape) -> Cow<'s, Rows> {
        let rows = || Rows::of(shape, &seat.client.train);
        let prepared = seat.may_prepare.then(|| seat.prepared.get_or_init(|| Box::new(rows())));
        prepared.and_then(|prepared| prepared.downcast_ref::<Rows>()).map_or_else(|| Cow::Owned(rows()), Cow::Borrowed)
    }

    pub(crate) fn unsound(&self, what: &str) -> Error {
        Error::federation(format!("{what} that does not fit the clients' mixture"))
    }
}
