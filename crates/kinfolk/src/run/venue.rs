//! Where the clients of a run are: in this process, or on other machines.

use super::*;
use crate::compute::{Backend, threads};
use crate::data::Population;
use crate::experiment::{Disclosure, Sums};
use crate::federation::engines::local::LocalFederation;
use crate::federation::engines::remote::{Line, Met};
use crate::federation::faults;
use crate::federation::wire::{self, DataOrder, write_settings};
use crate::settings::Field;

/// Where the clients of a run are.
pub trait Venue {
    /// Brings together the clients that belong to an experiment and a seed. A run that goes on gives back what the
    /// [meeting](Meeting::met) said of the machines when it began.
    fn open(&mut self, experiment: &Experiment, seed: u64, before: Option<&[u8]>) -> Result<Meeting>;
}

/// The clients of a seed, ready to be asked.
pub struct Meeting {
    /// What is known of them. Clients on other machines come without rows.
    pub population: Population,
    /// Asks them.
    pub engine: Box<dyn Engine>,
    /// Asks those that are met only after training.
    pub unseen: Option<Box<dyn Engine>>,
    /// The same clients with test rows on which the success of an attack is measured, where there are such.
    pub attacked: Option<Box<dyn Engine>>,
    /// Identifies the data.
    pub digest: String,
    /// Who was met, where a run that goes on must know.
    pub met: Option<Vec<u8>>,
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
    fn open(&mut self, experiment: &Experiment, seed: u64, _: Option<&[u8]>) -> Result<Meeting> {
        let mut population = self.pool.install(|| (self.populate)(experiment, seed))?;
        population.check()?;
        let attacked = faults::poison(&experiment.faults, seed, &mut population)?;
        let plain = |clients| LocalFederation::new(clients, self.pool.clone()).with_backend(self.backend.clone());
        let engine = |clients| {
            let engine = plain(clients);
            if experiment.privacy.sums == Disclosure::Sealed {
                return engine.with_sealed_sums();
            }
            match (experiment.top.sums, self.single_answers) {
                (Sums::Auto | Sums::Float, false) => engine,
                (Sums::Float, true) => engine.from_single_answers(),
                (Sums::Auto, true) | (Sums::Integer, _) => engine.with_integer_sums(),
            }
        };
        let unseen = match population.unseen.as_slice() {
            [] => None,
            clients => Some(Box::new(engine(clients.to_vec())) as Box<dyn Engine>),
        };
        let attacked = attacked.map(|clients| Box::new(plain(clients)) as Box<dyn Engine>);
        let engine = engine(population.clients.clone());
        let digest = population.digest();
        Ok(Meeting { population, engine: Box::new(engine), unseen, attacked, digest, met: None })
    }
}

/// Clients on other machines.
pub struct Elsewhere {
    line: Line,
    /// Whether they have been met: machines lost later do not end the run.
    met: bool,
    /// Whether the machines are processes of the run itself, which end with it.
    end_with_run: bool,
}

impl Elsewhere {
    /// The clients of the machines that this transport reaches.
    pub fn new(line: Line) -> Self {
        Self { line, met: false, end_with_run: false }
    }

    /// The clients of processes that end with the run: its checkpoints hold what clients remember, and it may go on with
    /// another number of processes.
    pub fn of_processes(line: Line) -> Self {
        Self { line, met: false, end_with_run: true }
    }
}

impl Venue for Elsewhere {
    fn open(&mut self, experiment: &Experiment, seed: u64, before: Option<&[u8]>) -> Result<Meeting> {
        if f64::find(&experiment.data, "unseen_clients").is_some_and(|unseen| unseen > 0.0) {
            return Err(Error::new(ErrorKind::Unsupported, "data.unseen_clients: other machines have none, want 0"));
        }
        if faults::spoils_rows(&experiment.faults) {
            let message = "faults.attack: rows of other machines are not spoilt";
            return Err(
                Error::new(ErrorKind::Unsupported, message).hint("use an attack on answers, or run in one process")
            );
        }
        let settings = write_settings(&experiment.data)?;
        let data = DataOrder { source: experiment.source.name.into(), settings, seed };
        let before: Option<Met> = before.filter(|_| !self.end_with_run).map(wire::decode).transpose()?;
        let patient = self.met || before.is_some();
        let now = Met::call(&self.line, &data, experiment.standardises(), patient, self.end_with_run)?;
        let met = before.as_ref().unwrap_or(&now);
        let (mut engine, population) = met.begin(&self.line, data, before.as_ref().map(|_| &now))?;
        engine = engine.named(experiment.name());
        match (experiment.privacy.sums, experiment.top.sums) {
            (Disclosure::Sealed, _) => engine = engine.with_sealed_sums(),
            (Disclosure::Open, Sums::Float) => engine = engine.from_single_answers(),
            (Disclosure::Open, Sums::Auto | Sums::Integer) => {}
        }
        self.met = true;
        let digest = met.digest();
        let met = (!self.end_with_run).then(|| wire::encode(met)).transpose()?;
        Ok(Meeting { population, engine: Box::new(engine), unseen: None, attacked: None, digest, met })
    }
}
