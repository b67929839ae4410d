//! `kinfolk.run`: an experiment from a file, a preset or a dict, to its run folder.

use super::*;
use kinfolk::compute::MOST_THREADS;
use kinfolk::disk::folder::run_folder;
use kinfolk::experiment::Experiment;
use kinfolk::presets;
use kinfolk::record::{RepeatSummary, RoundRecord};
use kinfolk::run::venue::InProcess;
use kinfolk::run::{Watch, checkpoint_every, run_at};
use pyo3::exceptions::PyKeyboardInterrupt;
use std::path::Path;

/// Runs an experiment to its end and returns its folder. Raises for faults of the input; a method that fails or
/// diverges is part of the result. `progress` is called with a dict whenever something happens.
#[pyfunction]
#[pyo3(signature = (
    experiment, overrides, *, out, threads, resume, tune, progress, clients=None, start=None, single_answers=false
))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword")]
pub fn run(
    py: Python,
    experiment: &Bound<'_, PyAny>,
    overrides: &Bound<'_, PyDict>,
    out: Option<PathBuf>,
    threads: Option<i64>,
    resume: bool,
    tune: bool,
    progress: Option<Bound<'_, PyAny>>,
    clients: Option<Bound<'_, PyAny>>,
    start: Option<Bound<'_, PyAny>>,
    single_answers: bool,
) -> PyResult<PathBuf> {
    let mut settings = Settings::default();
    let threads = check_threads(threads, &mut settings.faults);
    if resume && out.is_none() {
        settings.faults.push(Error::settings("resume: want also out, the folder of the run to go on with"));
    }
    let own = match (clients, start) {
        (Some(clients), start) => {
            OwnClients::read(py, &clients, start.as_ref()).map_err(|fault| settings.faults.push(fault)).ok()
        }
        (None, Some(_)) => {
            settings.faults.push(Error::settings("start: is for clients of your own, want also clients"));
            None
        }
        (None, None) => None,
    };
    let fill_in = |table: &mut Table| own.iter().for_each(|own| own.fill_in(table));
    let experiment = read(py, experiment, overrides, tune, settings, fill_in)?;
    let source = experiment.source.name;
    if own.is_some() && source != "own" {
        let message =
            format!("data.source: got \"{source}\", but the clients are given; want \"own\", or leave it out");
        return Err(raise(py, &Error::settings(message)));
    }
    let exceptions = own.as_ref().map(OwnClients::exceptions);
    let (population, start) = own.map(OwnClients::into_parts).unzip();
    let backend = kinfolk_cuda::chosen(None, None, Some(&experiment), |text| eprintln!("{text}"));
    let backend = backend.map_err(|error| raise(py, &error))?;
    let options = Options { threads, backend, resume, single_answers, start, ..Options::default() };
    let venue = |options: &Options| -> Result<Box<dyn Venue>> {
        Ok(Box::new(match population {
            Some(population) => InProcess::of(options, move |_, _| Ok(population.clone()))?,
            None => InProcess::new(options)?,
        }))
    };
    let done = carry_out(py, experiment, options, out, progress, venue);
    match exceptions {
        Some(exceptions) => done.map_err(|raised| exceptions.explain(py, raised)),
        None => done,
    }
}

/// Runs an experiment at a venue, and returns its folder.
pub fn carry_out(
    py: Python,
    experiment: Experiment,
    options: Options,
    out: Option<PathBuf>,
    progress: Option<Bound<'_, PyAny>>,
    venue: impl FnOnce(&Options) -> Result<Box<dyn Venue>> + Send + 'static,
) -> PyResult<PathBuf> {
    let (folder, new) = run_folder(out, experiment.name()).map_err(|error| raise(py, &error))?;
    let checkpoint_every = checkpoint_every().map_err(|error| raise(py, &error))?;
    let options = Options { folder: Some(folder.clone()), checkpoint_every, keep_models: false, ..options };
    let (stop, watched) = (options.stop.clone(), progress.is_some());
    let work = move |tell: &(dyn Fn(Event) + Sync)| {
        let mut watch = Reporter { tell: watched.then_some(tell) };
        let done = run_at(&mut *venue(&options)?, &experiment, &options, &mut watch).map(drop);
        drop(new);
        done
    };
    let ending = attend(py, &stop, true, work, |event| match &progress {
        Some(progress) => progress.call1((event,)).map(drop),
        None => Ok(()),
    })?;
    conclude(py, ending, &folder).map(|()| folder)
}

/// The number of threads; absent is one per core.
pub fn check_threads(threads: Option<i64>, faults: &mut Vec<Error>) -> usize {
    const MOST: i64 = MOST_THREADS as i64;
    match threads {
        None => 0,
        Some(count @ 1..=MOST) => count as usize,
        Some(count) => {
            faults.push(Error::settings(format!("threads: got {count}, want a whole number from 1 to {MOST}")));
            0
        }
    }
}

/// Reads and checks an experiment; `fill_in` may add settings to it.
pub fn read(
    py: Python,
    experiment: &Bound<'_, PyAny>,
    overrides: &Bound<'_, PyDict>,
    tune: bool,
    mut settings: Settings,
    fill_in: impl FnOnce(&mut Table),
) -> PyResult<Experiment> {
    let raise = |error: Error| raise(py, &error);
    let mut overrides = settings.overrides(overrides)?;
    overrides.extend(tune.then(Override::tune));
    let table = experiment.cast::<PyMapping>().ok().map(|table| settings.experiment(table)).transpose()?;
    kinfolk::settings::finish(settings.faults).map_err(raise)?;
    let (place, mut table) = match table {
        Some(table) => ("experiment".to_string(), table),
        None => presets::read(&experiment.extract::<PathBuf>()?.to_string_lossy())
            .and_then(|(place, text)| Ok((place.clone(), Experiment::read_table(&place, &text)?)))
            .map_err(raise)?,
    };
    fill_in(&mut table);
    Experiment::from_table(&place, table, &overrides).map_err(raise)
}

/// Raises the exception that a run ended with, if any.
fn conclude(py: Python, ending: Ending<Result<()>>, folder: &Path) -> PyResult<()> {
    let folder = folder.display();
    let go_on = format!("go on with out=\"{folder}\", resume=True");
    match (ending.interruption, ending.output) {
        (None, Some(Err(error))) => Err(raise(py, &error)),
        (None, _) => Ok(()),
        (Some(exception), _) if !exception.is_instance_of::<PyKeyboardInterrupt>(py) => Err(exception),
        (Some(_), output) => Err(PyKeyboardInterrupt::new_err(match output {
            Some(Ok(())) => format!("the run was finished all the same: kinfolk.load(\"{folder}\")"),
            Some(Err(error)) if error.kind() == ErrorKind::Stopped => format!("stopped; {go_on}"),
            Some(Err(error)) => format!("stopped, and then: {error}"),
            None => format!("still stopping in the background; then {go_on}"),
        })),
    }
}

/// Something that happened in a run: a dict in Python.
#[derive(IntoPyObject)]
enum Event {
    Doing { event: &'static str, what: String },
    Planned { event: &'static str, label: String, questions: usize, seeds: usize },
    Method { event: &'static str, label: String, seed: u64, from: usize, rounds: usize },
    Round(Round),
    Finished { event: &'static str, label: String, seed: u64, status: String, reason: Option<String> },
}

#[derive(IntoPyObject)]
struct Round {
    event: &'static str,
    label: String,
    seed: u64,
    round: usize,
    phase: String,
    loss: Option<f64>,
    metric: Option<f64>,
    switched: Option<usize>,
    sizes: Vec<usize>,
    bytes_down: u64,
    bytes_up: u64,
    seconds: f64,
}

/// Passes on events, if there is a listener.
struct Reporter<'a> {
    tell: Option<&'a dyn Fn(Event)>,
}

impl Reporter<'_> {
    fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(tell) = self.tell {
            tell(event());
        }
    }
}

impl Watch for Reporter<'_> {
    fn doing(&mut self, what: &str) {
        self.tell(|| Event::Doing { event: "doing", what: what.to_string() });
    }

    fn planned(&mut self, label: &str, questions: usize, seeds: usize) {
        self.tell(|| Event::Planned { event: "planned", label: label.to_string(), questions, seeds });
    }

    fn method(&mut self, label: &str, seed: u64, from: usize, rounds: usize) {
        self.tell(|| Event::Method { event: "method", label: label.to_string(), seed, from, rounds });
    }

    fn round(&mut self, record: &RoundRecord) {
        self.tell(|| {
            Event::Round(Round {
                event: "round",
                label: record.label.clone(),
                seed: record.seed,
                round: record.round,
                phase: record.phase.clone(),
                loss: record.loss,
                metric: record.metric,
                switched: record.switched,
                sizes: record.sizes.clone(),
                bytes_down: record.bytes_down,
                bytes_up: record.bytes_up,
                seconds: record.seconds,
            })
        });
    }

    fn finished(&mut self, summary: &RepeatSummary, label: &str) {
        let RepeatSummary { seed, status, reason, .. } = summary;
        let (seed, label) = (*seed, label.to_string());
        let event = "finished";
        self.tell(|| Event::Finished { event, label, seed, status: status.clone(), reason: reason.clone() });
    }
}
