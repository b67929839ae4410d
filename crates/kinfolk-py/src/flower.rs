//! Clients on other machines: messages are bytes, transported by Python.

use super::*;
use crate::clients::{Exceptions, read_clients};
use crate::run::{carry_out, read};
use kinfolk::disk::folder::{NewFolder, run_folder};
use kinfolk::federation::client::node::{Node, Rows};
use kinfolk::federation::client::site;
use kinfolk::federation::engines::remote::{Delivery, Line, MessageKind, Transport};
use kinfolk::fit::{FILES, FitSettings, fit_elsewhere, settle};
use kinfolk::run::Unwatched;
use kinfolk::run::venue::Elsewhere;
use kinfolk_node::{Connection, Security, default_state, leave_path_open};
use pyo3::exceptions::PyKeyboardInterrupt;

/// The clients of one machine: by its own file, a part of the experiment's dataset, or the user's own objects.
#[pyclass(frozen, module = "kinfolk")]
pub struct Site {
    site: Mutex<site::Site>,
}

/// A machine's answer: the reply, the state to pass with the next message of the same run, and lines for its log.
type Answered<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<String>);

#[pymethods]
impl Site {
    #[new]
    #[pyo3(signature = (*, node=None, partition=None, clients=None))]
    fn new(
        py: Python,
        node: Option<PathBuf>,
        partition: Option<(usize, usize)>,
        clients: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self { site: Mutex::new(build_site(py, node, partition, clients)?) })
    }

    /// Answers a message.
    fn answer<'py>(&self, py: Python<'py>, message: Vec<u8>, state: Vec<u8>) -> PyResult<Answered<'py>> {
        let answered = py.detach(|| {
            let mut site = self.site.lock().unwrap_or_else(PoisonError::into_inner);
            site.answer(&message, &state).map(|(reply, state)| (reply, state, site.take_log()))
        });
        let (reply, state, log) = answered.map_err(|error| raise(py, &error))?;
        Ok((PyBytes::new(py, &reply), PyBytes::new(py, &state), log))
    }
}

/// The clients of this machine.
fn build_site(
    py: Python,
    node: Option<PathBuf>,
    partition: Option<(usize, usize)>,
    clients: Option<Bound<'_, PyAny>>,
) -> PyResult<site::Site> {
    let given = match (partition, clients) {
        (None, None) => None,
        (Some((index, of)), None) => Some(Rows::Partition { index, of }),
        (None, Some(clients)) => {
            let mut faults = Vec::new();
            let clients = read_clients(&clients, &Arc::new(Exceptions::default()), &mut faults);
            kinfolk::settings::finish(faults).map_err(|error| raise(py, &error))?;
            Some(Rows::Given(clients, DataShape { form: Form::Own, ..DataShape::default() }))
        }
        _ => return Err(raise(py, &Error::settings("got partition and clients, want one of them"))),
    };
    let node = match (node, given) {
        (Some(path), given) => Node::read(&path, given),
        (None, Some(rows)) => Ok(Node::new(rows)),
        (None, None) => Err(Error::settings("want one of node, partition and clients")),
    };
    node.and_then(|node| Ok(site::Site::new(node, 0)?.with_models(settle))).map_err(|error| raise(py, &error))
}

/// Answers for the clients of this machine until Ctrl-C. `told` is handed the lines of the log.
#[pyfunction]
#[pyo3(signature = (superlink, *, node, partition, clients, root_certificates, insecure, key, state, told))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword")]
pub fn serve(
    py: Python,
    superlink: String,
    node: Option<PathBuf>,
    partition: Option<(usize, usize)>,
    clients: Option<Bound<'_, PyAny>>,
    root_certificates: Option<PathBuf>,
    insecure: bool,
    key: Option<PathBuf>,
    state: Option<PathBuf>,
    told: Bound<'_, PyAny>,
) -> PyResult<()> {
    let security = match (insecure, root_certificates) {
        (true, None) => Security::Insecure,
        (true, Some(_)) => {
            return Err(raise(py, &Error::settings("got insecure and root_certificates, want one of them")));
        }
        (false, Some(path)) => Security::Certificates(path),
        (false, None) => Security::PublicAuthorities,
    };
    let site = build_site(py, node, partition, clients)?;
    let state = state.unwrap_or_else(|| default_state(site.node()));
    let connection = Connection { superlink, security, key };
    let stop = Arc::new(AtomicBool::new(false));
    let raised = stop.clone();
    let work = move |tell: &(dyn Fn(String) + Sync)| {
        kinfolk_node::serve(&connection, site, &state, &raised, &|line| tell(line.to_string()))
    };
    let Ending { output, interruption } = attend(py, &stop, true, work, |line| told.call1((line,)).map(drop))?;
    match (output, interruption) {
        (Some(Err(error)), _) => Err(raise(py, &error)),
        // Ctrl-C is how it ends.
        (Some(Ok(())), Some(exception)) if exception.is_instance_of::<PyKeyboardInterrupt>(py) => Ok(()),
        (_, Some(exception)) => Err(exception),
        (_, None) => Ok(()),
    }
}

/// Runs an experiment with the clients of other machines and returns its folder. `machines` lists the machines, and
/// `exchange` takes messages with their purpose, and returns replies, or the reasons why there is none.
#[pyfunction]
#[pyo3(signature = (experiment, overrides, machines, exchange, *, out, start, resume=false, progress))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword")]
pub fn run_remote(
    py: Python,
    experiment: &Bound<'_, PyAny>,
    overrides: &Bound<'_, PyDict>,
    machines: Py<PyAny>,
    exchange: Py<PyAny>,
    out: Option<PathBuf>,
    start: Option<Bound<'_, PyAny>>,
    resume: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<PathBuf> {
    let mut settings = Settings::default();
    let own =
        start.and_then(|start| OwnClients::elsewhere(py, &start).map_err(|fault| settings.faults.push(fault)).ok());
    let experiment = read(py, experiment, overrides, false, settings, |table| {
        own.iter().for_each(|own| own.fill_in(table));
        leave_path_open(table);
    })?;
    let start = own.map(|own| own.into_parts().1);
    let venue =
        move |_: &Options| -> Result<Box<dyn Venue>> { Ok(Box::new(Elsewhere::new(line_of(machines, exchange)))) };
    carry_out(py, experiment, Options { start, resume, ..Options::default() }, out, progress, venue)
}

/// Fits the clients of other machines, as the tables of a file with `[fit]` say, and returns the folder of what is known of all in common.
/// `told` is handed what was understood of the columns, in lines.
#[pyfunction]
#[pyo3(signature = (file, machines, exchange, *, out, told))]
pub fn fit_remote(
    py: Python,
    file: &Bound<'_, PyMapping>,
    machines: Py<PyAny>,
    exchange: Py<PyAny>,
    out: Option<PathBuf>,
    told: Bound<'_, PyAny>,
) -> PyResult<PathBuf> {
    let mut settings = Settings::default();
    let file = settings.experiment(file)?;
    let read = kinfolk::settings::finish(settings.faults).and_then(|()| FitSettings::of_file(file));
    let (name, settings) = read.map_err(|error| raise(py, &error))?;
    let claim = || -> Result<(PathBuf, NewFolder)> {
        let (folder, new) = run_folder(out, &name)?;
        let claimed = match new {
            Some(new) => new,
            None => NewFolder::claim(&folder, FILES)?,
        };
        Ok((folder, claimed))
    };
    let (folder, claimed) = claim().map_err(|error| raise(py, &error))?;
    let options = Options::default();
    let stop = options.stop.clone();
    let work = move |tell: &(dyn Fn(Vec<String>) + Sync)| -> Result<()> {
        let mut tell = |lines: &[String]| tell(lines.to_vec());
        let line = line_of(machines, exchange);
        let saved = fit_elsewhere(&name, &line, settings, &options, &mut Unwatched, &mut tell)?;
        saved.write(claimed.path())
    };
    let Ending { output, interruption } = attend(py, &stop, false, work, |lines| told.call1((lines,)).map(drop))?;
    match (interruption, output) {
        (Some(exception), _) => Err(exception),
        (None, Some(Err(error))) => Err(raise(py, &error)),
        (None, _) => Ok(folder),
    }
}

fn line_of(machines: Py<PyAny>, exchange: Py<PyAny>) -> Line {
    let transport: Box<dyn Transport> = Box::new(Carrier { machines, exchange });
    Arc::new(Mutex::new(transport))
}

struct Carrier {
    machines: Py<PyAny>,
    exchange: Py<PyAny>,
}

/// What the Python code returns for a machine: the reply, or the reason why there is none.
type Entry = (u64, Option<Vec<u8>>, Option<String>);

/// No method can continue without a connection to its clients.
fn broken(exception: PyErr) -> Error {
    Python::attach(|py| {
        let said = match exception.is_instance_of::<errors::Error>(py) {
            true => exception.value(py).to_string(),
            false => exception.to_string(),
        };
        Error::federation(said).ending_the_run()
    })
}

impl Transport for Carrier {
    fn machines(&mut self) -> Result<Vec<u64>> {
        Python::attach(|py| self.machines.call0(py).and_then(|found| found.extract(py))).map_err(broken)
    }

    /// The Python code's name for it, if any.
    fn name(&mut self, number: u64) -> String {
        let name = Python::attach(|py| self.exchange.call_method1(py, "name", (number,))?.extract(py));
        name.unwrap_or_else(|_| format!("machine {number}"))
    }

    fn exchange(&mut self, messages: Vec<(u64, Vec<u8>)>, kind: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        let entries: Vec<Entry> = Python::attach(|py| {
            let messages: Vec<(u64, Bound<'_, PyBytes>)> =
                messages.iter().map(|(machine, message)| (*machine, PyBytes::new(py, message))).collect();
            self.exchange.call1(py, (messages, kind.name())).and_then(|found| found.extract(py))
        })
        .map_err(broken)?;
        let delivery = |(machine, reply, reason): Entry| {
            (machine, reply.ok_or_else(|| reason.unwrap_or_else(|| "no answer".into())))
        };
        Ok(entries.into_iter().map(delivery).collect())
    }
}
