//! Kinfolk finds which clients of a federation are kin and trains a model for every family.

pub mod aggregate;
pub mod assignment;
pub mod clustering;
pub mod compute;
pub mod data;
pub(crate) mod descent;
pub mod disk;
pub mod error;
pub mod evaluate;
pub mod experiment;
pub mod federation;
pub mod groups;
pub(crate) mod hierarchy;
pub(crate) mod memory;
pub mod methods;
pub mod mixture;
pub mod modelfile;
pub mod models;
pub mod num;
pub mod panics;
pub mod presets;
pub mod record;
pub mod report;
pub mod rng;
pub mod run;
pub mod settings;
pub mod text;
pub mod training;

pub use error::{Error, ErrorKind, Result};
