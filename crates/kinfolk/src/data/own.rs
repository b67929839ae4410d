//! Clients that are code of the user's own: what they hold and how they train is theirs, and nobody looks inside.
//!
//! Such a client is a [`Client`] like any other. Its shards hold no rows but the code itself, which the model `own` calls.

use super::{Client, Features, Shard, Targets};
use crate::error::{Error, Result};
use crate::linalg::Precision;
use crate::training::{Plan, Sample};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;

/// What a user's own client can do. Several threads may hold one, but no two call it at the same time.
pub trait OwnClient: Send + Sync + fmt::Debug {
    /// Its name.
    fn id(&self) -> &str;

    /// Its training rows: what it counts in means that are weighted by rows.
    fn rows(&self) -> usize;

    /// Whether it can score a model on rows it held out.
    fn can_score(&self) -> bool;

    /// The mean loss over its training rows.
    fn loss(&self, at: Point) -> Result<f64>;

    /// The mean losses of several models, for clients that are quicker at several than at one after the other.
    fn losses(&self, at: &[Point]) -> Result<Vec<f64>> {
        at.iter().map(|&at| self.loss(at)).collect()
    }

    /// Trained parameters into `out`; returns the loss before the first step, where it knows. The plan's seed is the
    /// client's alone.
    fn train(&self, from: Point, plan: &Plan, out: &mut [f64]) -> Result<Option<f64>>;

    /// The gradient of the mean loss into `out`; returns the loss, where it knows. The sample's seed is the client's alone.
    fn gradient(&self, at: Point, sample: &Sample, out: &mut [f64]) -> Result<Option<f64>>;

    /// How good a model is on held-out rows.
    fn score(&self, at: Point) -> Result<OwnScore>;

    /// All that may change in it, as bytes; `None` for a client that cannot tell.
    fn save(&self) -> Result<Option<Vec<u8>>>;

    /// Puts it back to where it was when it [saved](OwnClient::save) this.
    fn load(&self, state: &[u8]) -> Result<()>;
}

/// Parameters of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point<'a> {
    /// The numbers, rounded to the precision.
    pub values: &'a [f64],
    /// What the model computes in.
    pub precision: Precision,
}

/// How good a model is on the rows a client held out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OwnScore {
    /// How many rows.
    pub rows: u32,
    /// Mean loss.
    pub loss: f64,
    /// Rows whose class was right, where the client counts them.
    pub hits: Option<u32>,
}

/// Where models of the clients' own code begin.
#[derive(Clone)]
pub enum OwnStart {
    /// At these parameters; near them where several starts are wanted.
    At(Arc<Vec<f64>>),
    /// Wherever this draws them for a seed below 2³².
    Drawn(Arc<DrawStart>),
}

/// Draws parameters to begin at for a seed.
pub type DrawStart = dyn Fn(u64) -> Result<Vec<f64>> + Send + Sync;

impl OwnStart {
    /// Told apart from all others by where it begins, for a seed where it is drawn.
    pub(crate) fn digest(&self) -> Result<String> {
        let start = match self {
            OwnStart::At(start) => start.clone(),
            OwnStart::Drawn(draw) => Arc::new(draw(0).map_err(|error| error.at("start").ending_the_run())?),
        };
        let mut digest = Sha256::new();
        start.iter().for_each(|value| digest.update(value.to_le_bytes()));
        Ok(digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }
}

impl fmt::Debug for OwnStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OwnStart::At(start) => write!(f, "At({} numbers)", start.len()),
            OwnStart::Drawn(_) => write!(f, "Drawn"),
        }
    }
}

/// A user's own client as a shard holds it.
#[derive(Debug, Clone)]
pub struct OwnRows {
    code: Arc<OwnCode>,
    /// Whether the held-out rows are meant.
    held_out: bool,
}

/// A client and where it began.
#[derive(Debug)]
struct OwnCode {
    client: Box<dyn OwnClient>,
    beginning: Option<Vec<u8>>,
}

impl PartialEq for OwnRows {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.code, &other.code) && self.held_out == other.held_out
    }
}

impl OwnRows {
    /// The client.
    pub fn client(&self) -> &dyn OwnClient {
        &*self.code.client
    }

    /// Where the client began, as it tells it itself.
    pub(super) fn beginning(&self) -> &[u8] {
        self.code.beginning.as_deref().unwrap_or_default()
    }

    /// Whether the held-out rows are meant, not the training rows.
    pub fn held_out(&self) -> bool {
        self.held_out
    }

    /// How many rows are meant. How many were held out shows only in a score: any stand for one.
    pub(super) fn rows(&self) -> usize {
        if self.held_out { usize::from(self.client().can_score()) } else { self.client().rows() }
    }
}

impl Client {
    /// A client that is the user's own code. What it [saves](OwnClient::save) now is where every method finds it.
    pub fn own(client: Box<dyn OwnClient>, group: Option<String>, truth: Option<usize>) -> Result<Self> {
        let id = client.id().to_string();
        let beginning = client.save().map_err(|error| at(&*client, "save", error))?;
        let code = Arc::new(OwnCode { client, beginning });
        let shard = |held_out| Shard::new(Features::Own(OwnRows { code: code.clone(), held_out }), Targets::None);
        Ok(Self { id, train: shard(false)?, test: shard(true)?, group, truth })
    }

    fn own_code(&self) -> Option<&OwnCode> {
        match &**self.train.features() {
            Features::Own(rows) => Some(&rows.code),
            _ => None,
        }
    }

    /// What a checkpoint keeps of it; `None` for one that cannot be put back. Other clients than own ones keep nothing here.
    pub(crate) fn save(&self) -> Result<Option<Vec<u8>>> {
        match self.own_code() {
            Some(own) => own.client.save().map_err(|error| at(&*own.client, "save", error)),
            None => Ok(Some(Vec::new())),
        }
    }

    /// Puts it back to where a checkpoint found it.
    pub(crate) fn load(&self, state: &[u8]) -> Result<()> {
        match self.own_code() {
            Some(own) => own.client.load(state).map_err(|error| at(&*own.client, "load", error)),
            None => Ok(()),
        }
    }

    /// Puts it back to where it began, where it can.
    pub(crate) fn begin_anew(&self) -> Result<()> {
        match self.own_code().and_then(|own| own.beginning.as_deref()) {
            Some(beginning) => self.load(beginning),
            None => Ok(()),
        }
    }

    /// Refuses a client that cannot be put back to where a run was interrupted.
    pub(crate) fn check_resumable(&self) -> Result<()> {
        match self.own_code() {
            Some(OwnCode { beginning: None, .. }) => {
                let message = format!("client {}: has no save and load, so no run with it can be resumed", self.id);
                Err(Error::settings(message).hint("give it both, or start anew in another folder"))
            }
            _ => Ok(()),
        }
    }
}

/// An error of a client's own code: the user must see it, no method can do anything about it.
/// What the code says stays where it ran: another machine hears which verb failed, and as what.
pub(crate) fn at(client: &dyn OwnClient, verb: &str, error: Error) -> Error {
    let place = format!("client {}: {verb}", client.id());
    let told = format!("{place}: an error of kind {}; the machine's own log says more", error.kind().word());
    error.at(place).ending_the_run().telling(told)
}
