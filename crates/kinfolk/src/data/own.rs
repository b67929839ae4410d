//! Clients that are the user's own code: their data and their training are opaque.
//!
//! Such a client is a [`Client`] like any other. Its shards hold the code instead of rows; the model `own` calls it.

use super::*;
use crate::num::Precision;
use crate::training::{Plan, Sample};
use std::fmt;

/// The interface of a user's own client. Several threads may hold one, but no two call it at the same time.
pub trait OwnClient: Send + Sync + fmt::Debug {
    /// Its name.
    fn id(&self) -> &str;

    /// Number of training rows: its weight in means over rows.
    fn rows(&self) -> usize;

    /// Whether it can score a model on held-out rows.
    fn can_score(&self) -> bool;

    /// The mean loss over its training rows.
    fn loss(&self, at: Point) -> Result<f64>;

    /// The mean losses of several models, for clients that are faster at several at once.
    fn losses(&self, at: &[Point]) -> Result<Vec<f64>> {
        at.iter().map(|&at| self.loss(at)).collect()
    }

    /// Writes trained parameters into `out`; returns the loss before the first step, if known.
    /// The plan's seed is specific to the client.
    fn train(&self, from: Point, plan: &Plan, out: &mut [f64]) -> Result<Option<f64>>;

    /// Writes the gradient of the mean loss into `out`; returns the loss, if known. The sample's seed is specific to the
    /// client.
    fn gradient(&self, at: Point, sample: &Sample, out: &mut [f64]) -> Result<Option<f64>>;

    /// Scores a model on held-out rows.
    fn score(&self, at: Point) -> Result<OwnScore>;

    /// Its state as bytes; `None` for a client that cannot save it.
    fn save(&self) -> Result<Option<Vec<u8>>>;

    /// Restores a state that it [saved](OwnClient::save).
    fn load(&self, state: &[u8]) -> Result<()>;
}

/// Parameters of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point<'a> {
    /// The parameters, rounded to the precision.
    pub values: &'a [f64],
    /// The precision the model computes in.
    pub precision: Precision,
}

/// The score of a model on the held-out rows of a client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OwnScore {
    /// Number of rows.
    pub rows: u32,
    /// Mean loss.
    pub loss: f64,
    /// Rows classified correctly, where the client counts them.
    pub hits: Option<u32>,
}

/// Initial parameters of models of the clients' own code.
#[derive(Clone)]
pub enum OwnStart {
    /// These parameters; near them where several starts are wanted.
    At(Arc<Vec<f64>>),
    /// Drawn for a seed below 2³².
    Drawn(Arc<DrawStart>),
}

pub(crate) type DrawStart = dyn Fn(u64) -> Result<Vec<f64>> + Send + Sync;

impl OwnStart {
    /// A digest of the initial parameters, for seed 0 where they are drawn.
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

/// A user's own client, as stored in a shard.
#[derive(Debug, Clone)]
pub struct OwnRows {
    code: Arc<OwnCode>,
    /// Whether it stands for the held-out rows, not the training rows.
    pub(crate) held_out: bool,
}

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
    pub(crate) fn client(&self) -> &dyn OwnClient {
        &*self.code.client
    }

    /// The initial state of the client, as it saved it.
    pub(super) fn beginning(&self) -> &[u8] {
        self.code.beginning.as_deref().unwrap_or_default()
    }

    /// Number of rows. The number of held-out rows is known only from a score: any count as one.
    pub(super) fn rows(&self) -> usize {
        if self.held_out { usize::from(self.client().can_score()) } else { self.client().rows() }
    }
}

impl Client {
    /// A client that is the user's own code. Every method starts from the state it [saves](OwnClient::save) now.
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

    /// Its state for a checkpoint; `None` if it cannot be restored. Only a user's own client has one.
    pub(crate) fn save(&self) -> Result<Option<Vec<u8>>> {
        match self.own_code() {
            Some(own) => own.client.save().map_err(|error| at(&*own.client, "save", error)),
            None => Ok(Some(Vec::new())),
        }
    }

    pub(crate) fn load(&self, state: &[u8]) -> Result<()> {
        match self.own_code() {
            Some(own) => own.client.load(state).map_err(|error| at(&*own.client, "load", error)),
            None => Ok(()),
        }
    }

    /// Restores its initial state, where it can.
    pub(crate) fn begin_anew(&self) -> Result<()> {
        self.own_code().and_then(|own| own.beginning.as_deref()).map_or(Ok(()), |beginning| self.load(beginning))
    }

    /// Refuses a client whose state cannot be restored after an interruption.
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

/// An error of a client's own code, which ends the run. Its message stays on the machine it ran on: others are told only
/// which verb failed, and the kind of error.
pub(crate) fn at(client: &dyn OwnClient, verb: &str, error: Error) -> Error {
    let place = format!("client {}: {verb}", client.id());
    let told = format!("{place}: an error of kind {}; the machine's own log says more", error.kind().word());
    error.at(place).ending_the_run().telling(told)
}
