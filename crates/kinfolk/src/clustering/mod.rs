//! Clustering as pure functions, useful alone: no federation, no method, no state.

pub mod quality;
