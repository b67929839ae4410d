//! Kinfolk finds which clients of a federation are kin and trains a model for every family, without moving anybody's data.
//!
//! An [`Experiment`] is clients, a model, and one or more methods. Here four clients follow one line and four another; IFCA is
//! told that there are two kinds of clients, but not who is of which kind:
//!
//! ```
//! use kinfolk::methods::IfcaSettings;
//! use kinfolk::models::LinearSettings;
//! use kinfolk::{Client, Experiment, Shard};
//!
//! let client = |number: usize| {
//!     let slope = if number % 2 == 0 { 1.0 } else { -1.0 };
//!     let x: Vec<f64> = (0..20).map(|row| f64::from(row) / 10.0 - 1.0).collect();
//!     let y: Vec<f64> = x.iter().map(|x| slope * x).collect();
//!     Ok(Client::new(format!("client-{number}"), Shard::of_numbers(1, x, y)?))
//! };
//! let clients = (0..8).map(client).collect::<kinfolk::Result<Vec<_>>>()?;
//! let ifca = IfcaSettings { clusters: 2.into(), restarts: 5, ..IfcaSettings::default() };
//! let record = Experiment::on(clients).model(LinearSettings::default()).method(ifca).run()?;
//! let model = record.models_of("ifca")?.of_client("client-3")?;
//! assert!((model.predict(&[0.5])?[0] + 0.5).abs() < 0.01);
//! # Ok::<(), kinfolk::Error>(())
//! ```

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

pub use data::{Client, Shard};
pub use error::{Error, ErrorKind, Result};
pub use experiment::Experiment;
