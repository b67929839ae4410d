//! Vectors at the precision of a model.

use super::Precision;
use serde::{Deserialize, Serialize};

/// Numbers at the precision of the wire and of clients' state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Packed {
    /// 4 bytes each.
    F32(Vec<f32>),
    /// 8 bytes each.
    F64(Vec<f64>),
}

impl Packed {
    /// Rounds numbers to this precision.
    pub(crate) fn pack(values: &[f64], precision: Precision) -> Self {
        match precision {
            Precision::F32 => Packed::F32(values.iter().map(|&value| value as f32).collect()),
            Precision::F64 => Packed::F64(values.to_vec()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Packed::F32(values) => values.len(),
            Packed::F64(values) => values.len(),
        }
    }

    /// The numbers.
    pub fn unpack(&self) -> Vec<f64> {
        match self {
            Packed::F32(values) => values.iter().map(|&value| f64::from(value)).collect(),
            Packed::F64(values) => values.clone(),
        }
    }
}
