//! Where the clients of a run are: in this process, or on other machines.

use super::*;
use crate::compute::{Backend, threads};
use crate::data::Population;
use crate::federation::engines::local::LocalFederation;
use crate::federation::engines::remote::{Line, RemoteFederation};
use crate::federation::wire::{DataOrder, write_settings};
use crate::settings::Field;

/// Where the clients of a run are.
pub trait Venue {
    /// Brings together the clients that belong to an experiment and a seed.
    fn open(&mut self, experiment: &Experiment, seed: u64) -> Result<Meeting>;
}

/// The clients of a seed, ready to be asked.
pub struct Meeting {
    /// What is known of them. Clients on other machines come without rows.
    pub population: Population,
    /// Asks them.
    pub engine: Box<dyn Engine>,
    /// Asks those that are met only after training.
    pub unseen: Option<Box<dyn Engine>>,
    /// Identifies the data.
    pub digest: String,
}

type Populate = Box<dyn Fn(&Experiment, u64) -> Result<Population> + Send + Sync>;

/// Clients in this process.
pub struct InProcess {
    pool: Arc<rayon::ThreadPool>,
    backend: Arc<dyn Backend>,
    populate: Populate,
    single_answers: bool,
}

impl InProcess {
    /// Clients made from the experiment's data.
    pub fn new(options: &Options) -> Result<Self> {
        Self::of(options, Experiment::population)
    }

    /// Clients made in another way.
    pub fn of(
        options: &Options,
        populate: impl Fn(&Experiment, u64) -> Result<Population> + Send + Sync + 'static,
    ) -> Result<Self> {
        let pool = threads(options.threads)?;
        let (backend, single_answers) = (options.backend.clone(), options.single_answers);
        Ok(Self { pool, backend, populate: Box::new(populate), single_answers })
    }
}

impl Venue for InProcess {
    fn open(&mut self, experiment: &Experiment, seed: u64) -> Result<Meeting> {
        let population = self.pool.install(|| (self.populate)(experiment, seed))?;
        population.check()?;
        let engine = |clients| LocalFederation::new(clients, self.pool.clone()).with_backend(self.backend.clone());
        let unseen = match population.unseen.as_slice() {
            [] => None,
            clients => Some(Box::new(engine(clients.to_vec())) as Box<dyn Engine>),
        };
        let mut engine = engine(population.clients.clone());
        if self.single_answers {
            engine = engine.from_single_answers();
        }
        let digest = population.digest();
        Ok(Meeting { population, engine: Box::new(engine), unseen, digest })
    }
}

/// Clients on other machines.
pub struct Elsewhere {
    line: Line,
    /// Whether they have been met: machines lost later do not end the run.
    met: bool,
}

impl Elsewhere {
    /// The clients of the machines that this transport reaches.
    pub fn new(line: Line) -> Self {
        Self { line, met: false }
    }
}

impl Venue for Elsewhere {
    fn open(&mut self, experiment: &Experiment, seed: u64) -> Result<Meeting> {
        if f64::find(&experiment.data, "unseen_clients").is_some_and(|unseen| unseen > 0.0) {
            return Err(Error::new(ErrorKind::Unsupported, "data.unseen_clients: other machines have none, want 0"));
        }
        let settings = write_settings(&experiment.data)?;
        let data = DataOrder { source: experiment.source.name.into(), settings, seed };
        let (engine, population) = RemoteFederation::meet(&self.line, data, experiment.standardises(), self.met)?;
        self.met = true;
        Ok(Meeting { population, engine: Box::new(engine), unseen: None, digest: String::new() })
    }
}
