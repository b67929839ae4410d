//! What one client has at hand for one order: its rows, the ask's models, a worker to compute with, and what it keeps.

use super::host::Host;
use crate::data::Client;
use crate::error::{Error, Result};
use crate::federation::work::{Answer, Keep, Loss, Reply};
use crate::mixture::{Rows, Shape};
use crate::models::{Model, Seat, Worker};
use std::borrow::Cow;

/// What one client has at hand for one order.
pub struct ClientContext<'a> {
    pub(super) host: &'a Host,
    pub(super) stamp: u64,
    pub(super) order: usize,
    pub(super) client: u32,
    /// Computes with the ask's models.
    pub(crate) worker: &'a mut dyn Worker,
    /// The ask's models.
    pub(crate) models: &'a [Vec<f64>],
}

impl<'a> ClientContext<'a> {
    /// The client.
    pub(crate) fn client(&self) -> &'a Client {
        &self.host.clients()[self.client as usize]
    }

    /// The client with what is prepared of its rows.
    pub(crate) fn seat(&self) -> Seat<'a> {
        self.host.seat(self.client)
    }

    /// Its training rows.
    pub(crate) fn rows(&self) -> u32 {
        self.client().train.len() as u32
    }

    /// The clients' model.
    pub(crate) fn model(&self) -> Result<&'a dyn Model> {
        self.host.model().map(|model| &**model)
    }

    /// The fewest rows that an answer may be about.
    pub(crate) fn minimum_rows(&self) -> usize {
        self.host.minimum_rows()
    }

    /// The number of the ask.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// An answer.
    pub(crate) fn reply(&self, answer: impl Answer, vector: Option<Vec<f64>>) -> Reply {
        Reply::new(self.rows(), answer, vector)
    }

    /// An error that names the client.
    pub(crate) fn at(&self, error: Error) -> Error {
        error.at(format!("client {}", self.client().id))
    }

    /// Makes errors name the client.
    pub(crate) fn naming(&self) -> impl Fn(Error) -> Error + use<'a> {
        let client = self.client();
        move |error| error.at(format!("client {}", client.id))
    }

    /// Where the choice among models looks first.
    pub(crate) fn hint(&self) -> u32 {
        self.host.hint(self.client, self.order)
    }

    /// Where the next choice is to look first.
    pub(crate) fn set_hint(&self, hint: u32) {
        self.host.set_hint(self.client, self.order, hint);
    }

    /// The client's own model, as it was left by the ask with this stamp.
    pub(crate) fn own_model(&self, stamp: u64) -> Result<Vec<f64>> {
        self.host.own_model(self.client, stamp)
    }

    /// A copy of the vectors that the client kept in the ask with this stamp.
    pub(crate) fn own_vectors(&self, stamp: u64) -> Result<Vec<f64>> {
        self.host.own_vectors(self.client, stamp)
    }

    /// The same vectors, so many, taken away until the client keeps something again.
    pub(crate) fn take_vectors(&self, stamp: u64, count: u32) -> Result<Vec<f64>> {
        self.host.take_vectors(self.client, stamp, count)
    }

    /// The client's own model with a model of the ask in place of its first parameters.
    pub(crate) fn completed_model(&self, model: usize, stamp: u64) -> Result<Vec<f64>> {
        let mut params = self.own_model(stamp)?;
        let model = self.models.get(model).filter(|model| model.len() <= params.len());
        let model = model.ok_or_else(|| self.unsound("a model"))?;
        params[..model.len()].copy_from_slice(model);
        Ok(params)
    }

    /// The numbers that were answered when the client kept something in the ask with this stamp.
    pub(crate) fn numbers_of(&self, stamp: u64) -> Option<Vec<f64>> {
        self.host.kept_by(self.client, stamp)
    }

    /// The same of this ask: it has been carried out, and its answer got lost on the way.
    pub(crate) fn numbers_of_this_ask(&self) -> Option<Vec<f64>> {
        self.numbers_of(self.stamp)
    }

    /// Has the client keep vectors, its own model first, with the numbers it answers.
    pub(crate) fn keep(&self, numbers: &[f64], vectors: Vec<f64>) -> Result<()> {
        self.host.keep(self.client, self.stamp, numbers, vectors)
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

    /// The form of the clients' mixture.
    pub(crate) fn shape(&self) -> Result<Shape> {
        let shape = self.model()?.mixture();
        shape.copied().ok_or_else(|| Error::federation("the clients' model is not a mixture"))
    }

    /// The client's training rows as a mixture of this shape sees them.
    pub(crate) fn mixture_rows<'s>(&self, seat: &'s Seat, shape: &Shape) -> Cow<'s, Rows> {
        if !seat.may_prepare {
            return Cow::Owned(Rows::of(shape, &seat.client.train));
        }
        let prepared = seat.prepared.get_or_init(|| Box::new(Rows::of(shape, &seat.client.train)));
        match prepared.downcast_ref::<Rows>() {
            Some(rows) => Cow::Borrowed(rows),
            None => Cow::Owned(Rows::of(shape, &seat.client.train)),
        }
    }

    /// The error of work on mixtures that are not the clients'.
    pub(crate) fn unsound(&self, what: &str) -> Error {
        Error::federation(format!("{what} that does not fit the clients' mixture"))
    }
}
