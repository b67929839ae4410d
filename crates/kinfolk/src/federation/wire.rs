//! Asks and answers as bytes.
//!
//! A message begins with the version of this layout. Work that this version does not know is an
//! `Unsupported` error, never a guess.

use super::{Phase, Score, Work};
use crate::data::schema::Description;
use crate::error::{Error, ErrorKind, Result};
use crate::models::Precision;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of the messages this code writes and reads.
pub const VERSION: u16 = 5;

/// Numbers at the precision they travel and rest in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Packed {
    /// 4 bytes each.
    F32(Vec<f32>),
    /// 8 bytes each.
    F64(Vec<f64>),
}

impl Packed {
    /// Rounds numbers to this precision.
    pub fn pack(values: &[f64], precision: Precision) -> Self {
        match precision {
            Precision::F32 => Packed::F32(values.iter().map(|&value| value as f32).collect()),
            Precision::F64 => Packed::F64(values.to_vec()),
        }
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        match self {
            Packed::F32(values) => values.len(),
            Packed::F64(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers.
    pub fn unpack(&self) -> Vec<f64> {
        match self {
            Packed::F32(values) => values.iter().map(|&value| f64::from(value)).collect(),
            Packed::F64(values) => values.clone(),
        }
    }
}

/// An ask as one client receives it: its own orders and the models they name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AskMessage {
    /// The number of the ask; stamps what the client keeps.
    pub stamp: u64,
    /// What it is for.
    pub phase: Phase,
    /// Models with their index in the ask.
    pub models: Vec<(u32, Packed)>,
    /// Orders with their index in the ask.
    pub orders: Vec<(u32, Work)>,
}

/// What one client sends back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnswerMessage {
    /// Replies with the index of the order they belong to.
    pub replies: Vec<(u32, PackedReply)>,
}

/// One client's reply to one order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// Its training rows.
    pub rows: u32,
    /// The position of the chosen model.
    pub choice: Option<u32>,
    /// Losses.
    pub losses: Vec<f64>,
    /// A model or a gradient.
    pub vector: Option<Vec<f64>>,
    /// A score on held-out rows.
    pub score: Option<Score>,
    /// A description of its data.
    pub description: Option<Description>,
}

/// A reply whose vector has the precision of the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PackedReply {
    rows: u32,
    choice: Option<u32>,
    losses: Vec<f64>,
    vector: Option<Packed>,
    score: Option<Score>,
    description: Option<Description>,
}

impl Reply {
    /// As it travels.
    pub fn pack(self, precision: Precision) -> PackedReply {
        PackedReply {
            rows: self.rows,
            choice: self.choice,
            losses: self.losses,
            vector: self.vector.map(|vector| Packed::pack(&vector, precision)),
            score: self.score,
            description: self.description,
        }
    }
}

impl PackedReply {
    /// As it arrived.
    pub fn unpack(self) -> Reply {
        Reply {
            rows: self.rows,
            choice: self.choice,
            losses: self.losses,
            vector: self.vector.map(|vector| vector.unpack()),
            score: self.score,
            description: self.description,
        }
    }
}

/// A message as bytes.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>> {
    postcard::to_extend(message, VERSION.to_le_bytes().to_vec())
        .map_err(|error| Error::new(ErrorKind::Federation, format!("a message could not be written: {error}")))
}

/// A message from bytes.
pub fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M> {
    let (version, body) = bytes.split_first_chunk::<2>().ok_or_else(|| {
        Error::new(ErrorKind::Federation, format!("a message of {} bytes has no version", bytes.len()))
    })?;
    let version = u16::from_le_bytes(*version);
    if version != VERSION {
        return Err(Error::new(ErrorKind::Unsupported, format!("message version {version}, want {VERSION}"))
            .hint("use the same version of kinfolk on both sides"));
    }
    postcard::from_bytes(body)
        .map_err(|error| Error::new(ErrorKind::Unsupported, format!("a message could not be read: {error}")))
}

/// How many bytes a value takes.
pub fn size<M: Serialize>(value: &M) -> u64 {
    encode(value).map_or(0, |bytes| bytes.len() as u64 - 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::federation::Keep;
    use crate::federation::{Amount, Course, Optimiser, Plan, Portion, Sample, Start, Then};

    fn message() -> AskMessage {
        AskMessage {
            stamp: 3,
            phase: Phase::Train,
            models: vec![(1, Packed::pack(&[1.0, 0.1], Precision::F32))],
            orders: vec![(0, Work::Choose { among: vec![1], on: Portion::All, then: Then::Nothing })],
        }
    }

    #[test]
    fn a_message_survives_the_wire() {
        let bytes = encode(&message()).unwrap();
        assert_eq!(decode::<AskMessage>(&bytes).unwrap(), message());
        assert_eq!(Packed::pack(&[0.1], Precision::F32).unpack(), [f64::from(0.1f32)]);
        assert_eq!(Packed::pack(&[0.1], Precision::F64).unpack(), [0.1]);
    }

    #[test]
    fn a_plan_travels_with_its_course() {
        let course = Course { fading: true, averaged: true, tolerance: 1e-9 };
        let optimiser = Optimiser::Descent { momentum: 0.0, weight_decay: 0.1 };
        let plan =
            Plan { sample: Sample::FULL, amount: Amount::Steps(3), step: 0.5, optimiser, pulls: Vec::new(), course };
        let train = Work::Train { from: Start::Model(1), plan, keep: Keep::No };
        let minimise = Work::Minimise { ridge: 0.1, keep: true };
        let sent = AskMessage { orders: vec![(0, train), (1, minimise)], ..message() };
        assert_eq!(decode::<AskMessage>(&encode(&sent).unwrap()).unwrap(), sent);
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let mut bytes = encode(&message()).unwrap();
        assert_eq!(decode::<AskMessage>(&bytes[..1]).unwrap_err().kind(), ErrorKind::Federation);
        assert_eq!(decode::<AskMessage>(&bytes[..bytes.len() - 1]).unwrap_err().kind(), ErrorKind::Unsupported);
        bytes[0] = 99;
        assert!(decode::<AskMessage>(&bytes).unwrap_err().to_string().starts_with("message version 99, want 5"));
    }
}
