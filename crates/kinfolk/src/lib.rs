//! Kinfolk finds which clients of a federation are kin and trains a model for every family.

pub mod clustering;
pub mod data;
pub mod error;
pub mod federation;
pub mod linalg;
pub mod methods;
pub mod modelfile;
pub mod models;
pub mod report;
pub mod rng;
pub mod settings;

pub use error::{Error, ErrorKind, Result};
