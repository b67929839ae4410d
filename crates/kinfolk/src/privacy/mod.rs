//! Differential privacy.

pub mod accountant;
