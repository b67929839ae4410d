//! Kinfolk finds which clients of a federation are kin and trains a model for every family, without moving anybody's data.
//!
//! An [`Experiment`] is clients, a model, and one or more methods. [`methods`], [`models`] and [`data`] have a struct of settings for
//! each one there is; what is not said has its default, and all of it is checked before anything runs.
//!
//! # Which clients are alike, and what is the model of each?
//!
//! Half of these clients follow one line and half another. IFCA is told how many kinds there are, but not who is of which:
//!
//! ```
//! use kinfolk::{Client, Experiment, Shard, methods::IfcaSettings, models::LinearSettings};
//!
//! let client = |number: usize| {
//!     let slope = if number % 2 == 0 { 1.0 } else { -1.0 };
//!     let x: Vec<f64> = (0..20).map(|row| f64::from(row) / 10.0 - 1.0).collect();
//!     let y: Vec<f64> = x.iter().map(|x| slope * x).collect();
//!     Ok(Client::new(format!("client-{number}"), Shard::of_numbers(1, x, y)?))
//! };
//! let clients = (0..8).map(client).collect::<kinfolk::Result<Vec<Client>>>()?;
//! let ifca = IfcaSettings { clusters: 2.into(), restarts: 5, ..IfcaSettings::default() };
//! let record = Experiment::on(clients).model(LinearSettings::default()).method(ifca).run()?;
//! let model = record.models_of("ifca")?.of_client("client-3")?;
//! assert!((model.predict(&[0.5])?[0] + 0.5).abs() < 0.01);
//! # Ok::<(), kinfolk::Error>(())
//! ```
//!
//! The [`Record`] also says how every round went, how every client scored, and what crossed between server and clients. [`run::run`]
//! takes [`run::Options`] (threads, a run folder with checkpoints, a way to stop) and a [`run::Watch`] that follows its progress.
//! Data can come from a source instead of a program, such as a table ([`data::TableSettings`]) or a generator, and a whole
//! experiment from a file ([`Experiment::parse`]).
//!
//! # A model of one's own
//!
//! A network is forward and backward ([`OwnNetwork`]); batches, optimisers, choices among models and scores come with the trainer.
//! This one says that something grows like e<sup>θ·x</sup>:
//!
//! ```
//! use kinfolk::{methods::FedAvgSettings, *};
//! struct Growth;
//! impl OwnNetwork for Growth {
//!     fn build(_: &Settings, _: DataShape) -> Result<Self> { Ok(Self) }
//!     fn layout(&self) -> Layout { Layout::of([("rate", &[1])]) }
//!     fn forward(&self, rate: &[f64], x: &[f64], _: &mut Vec<f64>, out: &mut [f64]) {
//!         out.iter_mut().zip(x).for_each(|(out, x)| *out = (rate[0] * x).exp());
//!     }
//!     fn backward(&self, rate: &[f64], x: &[f64], _: &[f64], slopes: &[f64], out: &mut [f64]) {
//!         out[0] = x.iter().zip(slopes).map(|(x, slope)| slope * x * (rate[0] * x).exp()).sum();
//!     }
//! }
//! let rows = Shard::of_numbers(1, vec![0.0, 1.0, 2.0], vec![1.0, 1.5, 2.25])?; // grows by half
//! let draft = Experiment::on(vec![Client::new("a", rows)]).model(Growth::MODEL).method(FedAvgSettings::default());
//! assert!((draft.run()?.models_of("fedavg")?.of_client("a")?.parameters[0] - 1.5_f64.ln()).abs() < 1e-6);
//! # Ok::<(), kinfolk::Error>(())
//! ```
//!
//! # A method of one's own
//!
//! A method reads like pseudocode: round by round it asks clients for work, and in the end it says what it found. Who is missing,
//! what was sent and whether it diverged is recorded for it. This is federated averaging:
//!
//! ```
//! use kinfolk::{Experiment, data, methods::prelude::*, models};
//! struct Mean(Params);
//! impl Method for Mean {
//!     fn round(&mut self, room: &mut Room) -> Result<Progress> {
//!         let mut ask = Ask::new(Phase::Train, vec![self.0.clone()], Gather::Sum { by: By::All, weight: Weight::Rows });
//!         let order = ask.order(Recipients::All, Train::from_model(0, Plan::steps(10, 0.05)));
//!         let answers = room.ask(&ask)?;
//!         self.0 = answers.of(order).sums[0].mean().map_or_else(|| self.0.clone(), Params::new);
//!         Ok(Progress::of(room.check_loss(&answers.of(order).losses())?, room.round() == 19))
//!     }
//!     fn outcome(&self) -> Outcome { Outcome::of_model(self.0.clone()) }
//! }
//! static MEAN: MethodKind = MethodKind::own("mean", |setup| Ok(Box::new(Mean(setup.common_start()?))));
//! let draft = Experiment::on(data::LinearSettings::default()).model(models::LinearSettings::default());
//! assert_eq!(draft.method(&MEAN).run()?.summary.methods[0].repeats[0].rounds, 20);
//! # Ok::<(), kinfolk::Error>(())
//! ```
//!
//! Settings of its own are declared once, with [`settings!`](crate::settings!). A [`Registry`] with one's own models and methods reads
//! experiment files that name them.
//!
//! # Points to cluster
//!
//! Clustering, mixtures and aggregation are pure functions, of use without any federation. How many clusters are these?
//!
//! ```
//! use kinfolk::clustering::{Points, Request, find};
//! use rand_distr::{Distribution, StandardNormal};
//!
//! let noise = StandardNormal.sample_iter(kinfolk::rng::Key::new(7).rng());
//! let around = |(centre, noise): (f64, f64)| centre + noise;
//! let values: Vec<f64> = [0.0, 10.0, 20.0].into_iter().cycle().zip(noise).take(90).map(around).collect();
//! let found = find(Points::new(&values, 1)?, &Request::default(), &mut |_| Ok(()))?;
//! assert_eq!((found.clustering.clusters(), found.sureness.map(|it| it.word)), (3, Some("certain")));
//! assert_eq!(found.clustering.labels[..6], [0, 1, 2, 0, 1, 2]);
//! # Ok::<(), kinfolk::Error>(())
//! ```

pub mod aggregate;
pub mod assignment;
pub mod clustering;
#[doc(hidden)]
pub mod compute;
pub mod data;
pub(crate) mod descent;
#[doc(hidden)]
pub mod disk;
pub mod error;
#[doc(hidden)]
pub mod evaluate;
pub mod experiment;
#[doc(hidden)]
pub mod families;
pub mod federation;
#[doc(hidden)]
pub mod fit;
#[doc(hidden)]
pub mod groups;
pub(crate) mod hierarchy;
pub(crate) mod memory;
pub mod methods;
pub mod mixture;
#[doc(hidden)]
pub mod modelfile;
pub mod models;
#[doc(hidden)]
pub mod num;
#[doc(hidden)]
pub mod over;
#[doc(hidden)]
pub mod panics;
#[doc(hidden)]
pub mod presets;
#[doc(hidden)]
pub mod privacy;
pub mod record;
#[doc(hidden)]
pub mod report;
pub mod rng;
pub mod run;
pub mod settings;
#[doc(hidden)]
pub mod text;
pub mod training;

pub use data::{Client, DataShape, Shard};
pub use error::{Error, ErrorKind, Result};
pub use experiment::{Experiment, Registry};
pub use models::{Layout, OwnNetwork};
pub use record::Record;
pub use settings::Settings;
