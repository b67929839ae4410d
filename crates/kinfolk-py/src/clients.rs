//! A user's own clients: Python objects behind the few verbs of the waist.
//!
//! The GIL is taken for each call and given back after it. Parameters go over as a fresh array of the model's precision,
//! which the object may change; what comes back is copied out of the array it came in.

use super::*;
use kinfolk::data::own::{OwnClient, OwnScore, OwnStart, Point};
use kinfolk::data::{Client, Population};
use kinfolk::models::Precision;
use kinfolk::training::{Amount, Course, Optimiser, Plan, Sample, Terms};
use pyo3::intern;
use pyo3::types::PyComplex;
use std::cell::RefCell;

/// Lines of a traceback that an error shows, two for every call.
const SHOWN_CALLS: usize = 3;

/// Exceptions of the user's code, by what was said of them.
#[derive(Debug, Default)]
pub struct Exceptions(Mutex<Vec<(String, PyErr)>>);

impl Exceptions {
    fn keep(&self, said: String, exception: PyErr) {
        const KEPT: usize = 8;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Each holds on to the frames it came through.
        if kept.len() == KEPT {
            kept.remove(0);
        }
        kept.push((said, exception));
    }

    /// Raises an error from the exception behind it, where there is one.
    pub fn explain(&self, py: Python, raised: PyErr) -> PyErr {
        let text = raised.to_string();
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cause = kept.iter().find(|(said, _)| text.contains(said));
        raised.set_cause(py, cause.map(|(_, exception)| exception.clone_ref(py)));
        raised
    }

    /// The error of a failure; of an exception its type and message, and where it came from.
    fn error(&self, py: Python, failure: Failure) -> Error {
        match failure {
            Failure::Raised(exception) => {
                let said = describe(py, &exception).unwrap_or_else(|_| exception.to_string());
                self.keep(said.clone(), exception);
                wrong(said)
            }
            Failure::Wrong(error) => error,
        }
    }
}

/// Why a call of the user's code gave no answer.
enum Failure {
    Raised(PyErr),
    Wrong(Error),
}

impl From<PyErr> for Failure {
    fn from(exception: PyErr) -> Self {
        Self::Raised(exception)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Wrong(error)
    }
}

type Answer<T> = std::result::Result<T, Failure>;

fn describe(py: Python, exception: &PyErr) -> PyResult<String> {
    let mut said = exception.to_string();
    if let Some(traceback) = exception.traceback(py) {
        let calls: Vec<String> = py.import("traceback")?.call_method1("format_tb", (traceback,))?.extract()?;
        for call in &calls[calls.len().saturating_sub(SHOWN_CALLS)..] {
            said.push('\n');
            said.push_str(call.trim_end());
        }
    }
    Ok(said)
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Client, message)
}

/// The name of an object's type, as in `numpy.ndarray`.
fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().fully_qualified_name().map_or_else(|_| "something".into(), |name| name.to_string())
}

/// An object as an error shows it.
fn display(object: &Bound<'_, PyAny>) -> String {
    object.repr().map_or_else(|_| type_name(object), |text| text.to_string())
}

#[derive(Debug)]
struct PythonClient {
    id: String,
    object: Py<PyAny>,
    rows: usize,
    verbs: Verbs,
    exceptions: Arc<Exceptions>,
}

/// Optional methods of the object.
#[derive(Debug, Clone, Copy)]
struct Verbs {
    gradient: bool,
    score: bool,
    save: bool,
}

impl PythonClient {
    /// Calls the object, with the GIL held.
    fn with<T>(&self, call: impl FnOnce(Python, &Bound<'_, PyAny>) -> Answer<T>) -> Result<T> {
        Python::attach(|py| call(py, self.object.bind(py)).map_err(|failure| self.exceptions.error(py, failure)))
    }

    fn without(verb: &str) -> Error {
        wrong(format!("the method asks for it, but the object has no {verb}"))
            .hint(format!("write a method {verb}, or use settings that do without"))
    }
}

impl OwnClient for PythonClient {
    fn id(&self) -> &str {
        &self.id
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn can_score(&self) -> bool {
        self.verbs.score
    }

    fn loss(&self, at: Point) -> Result<f64> {
        Ok(self.losses(&[at])?[0])
    }

    /// Taking the GIL costs more than passing the parameters.
    fn losses(&self, at: &[Point]) -> Result<Vec<f64>> {
        self.with(|py, object| {
            let loss = |&at: &Point| Ok(read_number(&object.call_method1(intern!(py, "loss"), (array(py, at),))?)?);
            at.iter().map(loss).collect()
        })
    }

    fn train(&self, from: Point, plan: &Plan, out: &mut [f64]) -> Result<Option<f64>> {
        self.with(|py, object| {
            let given = (array(py, from), python_plan(py, plan)?);
            read_vector_and_loss(&object.call_method1(intern!(py, "train"), given)?, out)
        })
    }

    fn gradient(&self, at: Point, sample: &Sample, out: &mut [f64]) -> Result<Option<f64>> {
        if !self.verbs.gradient {
            return Err(Self::without("gradient"));
        }
        let plan = Plan {
            sample: sample.clone(),
            amount: Amount::Steps(1),
            step: 0.0,
            optimiser: Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 },
            terms: Terms::default(),
            course: Course::PLAIN,
        };
        self.with(|py, object| {
            let given = (array(py, at), python_plan(py, &plan)?);
            read_vector_and_loss(&object.call_method1(intern!(py, "gradient"), given)?, out)
        })
    }

    fn score(&self, at: Point) -> Result<OwnScore> {
        self.with(|py, object| read_score(&object.call_method1(intern!(py, "score"), (array(py, at),))?))
    }

    fn save(&self) -> Result<Option<Vec<u8>>> {
        if !self.verbs.save {
            return Ok(None);
        }
        self.with(|py, object| {
            let saved = object.call_method0(intern!(py, "save"))?;
            let bytes = saved.cast::<PyBytes>().map_err(|_| wrong(format!("got {}, want bytes", type_name(&saved))))?;
            Ok(Some(bytes.as_bytes().to_vec()))
        })
    }

    fn load(&self, state: &[u8]) -> Result<()> {
        self.with(|py, object| Ok(object.call_method1(intern!(py, "load"), (PyBytes::new(py, state),)).map(drop)?))
    }
}

fn array<'py>(py: Python<'py>, at: Point) -> Bound<'py, PyAny> {
    match at.precision {
        Precision::F32 => PyArray1::from_vec(py, at.values.iter().map(|&value| value as f32).collect()).into_any(),
        Precision::F64 => PyArray1::from_slice(py, at.values).into_any(),
    }
}

/// A `kinfolk.Plan`; its fields in their order.
fn python_plan<'py>(py: Python<'py>, plan: &Plan) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: pyo3::sync::PyOnceLock<Py<pyo3::types::PyType>> = pyo3::sync::PyOnceLock::new();
    let (steps, epochs) = match plan.amount {
        Amount::Steps(steps) => (Some(steps), None),
        Amount::Epochs(epochs) => (None, Some(epochs)),
    };
    let (optimiser, momentum, weight_decay) = match plan.optimiser {
        Optimiser::Descent { momentum, weight_decay } => ("descent", momentum, weight_decay),
        Optimiser::Adam { weight_decay } => ("adam", 0.0, weight_decay),
    };
    let Course { fading, averaged, tolerance } = plan.course;
    let optimiser = PyString::intern(py, optimiser);
    CLASS.import(py, "kinfolk.clients", "Plan")?.call1((
        steps,
        epochs,
        plan.sample.batch,
        plan.step,
        optimiser,
        momentum,
        weight_decay,
        plan.sample.seed,
        fading,
        averaged,
        tolerance,
    ))
}

/// Anything that Python converts to a float.
fn read_number(given: &Bound<'_, PyAny>) -> Result<f64> {
    let refuse = || wrong(format!("got {}, want a number", type_name(given)));
    match given.is_instance_of::<PyComplex>() {
        true => Err(refuse()),
        false => given.extract().map_err(|_| refuse()),
    }
}

/// A vector, or a tuple of a vector and a loss.
fn read_vector_and_loss(given: &Bound<'_, PyAny>, out: &mut [f64]) -> Answer<Option<f64>> {
    let Ok(pair) = given.cast::<PyTuple>() else {
        return read_vector(given, out).map(|()| None);
    };
    if pair.len() != 2 {
        let message = format!("got a tuple of {}, want an array, or an array and a loss", pair.len());
        return Err(wrong(message).into());
    }
    read_vector(&pair.get_item(0)?, out)?;
    Ok(Some(read_number(&pair.get_item(1)?)?))
}

/// The numbers of an array with one axis, of any numeric type and any strides.
fn read_vector(given: &Bound<'_, PyAny>, out: &mut [f64]) -> Answer<()> {
    let want = out.len();
    let refuse = |found: String| Err(wrong(found).into());
    let Ok(array) = given.cast::<PyUntypedArray>() else {
        return refuse(format!("got {}, want a numpy array of {want} numbers", type_name(given)));
    };
    match array.shape() {
        [length] if *length == want => {}
        [length] => return refuse(format!("got an array of {length} numbers, want {want}")),
        shape => return refuse(format!("got an array of shape {shape:?}, want [{want}]")),
    }
    if !matches!(array.dtype().kind(), b'f' | b'i' | b'u') {
        return refuse(format!("got an array of {}, want numbers", array.dtype()));
    }
    // A view may step by what is no multiple of its numbers, as a field of a record does; a copy never does.
    let plain = array.is_aligned() && array.is_c_contiguous();
    if let (true, Ok(values)) = (plain, given.cast::<PyArray1<f64>>()) {
        out.iter_mut().zip(values.readonly().as_array()).for_each(|(out, value)| *out = *value);
    } else if let (true, Ok(values)) = (plain, given.cast::<PyArray1<f32>>()) {
        out.iter_mut().zip(values.readonly().as_array()).for_each(|(out, value)| *out = f64::from(*value));
    } else {
        let converted = given.call_method1("astype", ("float64",))?;
        let values = converted.cast::<PyArray1<f64>>().map_err(PyErr::from)?.readonly();
        out.iter_mut().zip(values.as_array()).for_each(|(out, value)| *out = *value);
    }
    Ok(())
}

/// A `kinfolk.Score`, or anything with its attributes.
fn read_score(given: &Bound<'_, PyAny>) -> Answer<OwnScore> {
    let py = given.py();
    let [Ok(rows), Ok(loss), Ok(hits)] =
        [intern!(py, "rows"), intern!(py, "loss"), intern!(py, "hits")].map(|name| given.getattr(name))
    else {
        return Err(wrong(format!("got {}, want a kinfolk.Score", type_name(given))).into());
    };
    let count = |name: &str, value: &Bound<'_, PyAny>| {
        let refuse = |_| wrong(format!("{name}: got {}, want a whole number of at least 0", display(value)));
        value.extract::<u32>().map_err(refuse)
    };
    let rows = count("rows", &rows)?;
    let hits = if hits.is_none() { None } else { Some(count("hits", &hits)?) };
    if let Some(hits) = hits.filter(|hits| *hits > rows) {
        return Err(wrong(format!("hits: got {hits}, want at most the rows, {rows}")).into());
    }
    Ok(OwnScore { rows, loss: read_number(&loss).map_err(|error| error.at("loss"))?, hits })
}

/// A user's own clients, and where their models begin.
pub struct OwnClients {
    clients: Vec<Client>,
    start: OwnStart,
    parameters: usize,
    precision: Precision,
    exceptions: Arc<Exceptions>,
}

impl OwnClients {
    /// Checks everything before anything runs, and reports all faults together.
    pub fn read(py: Python, clients: &Bound<'_, PyAny>, start: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        let exceptions = Arc::new(Exceptions::default());
        let mut faults = Vec::new();
        let clients = read_clients(clients, &exceptions, &mut faults);
        let start = match start {
            Some(start) => read_start(py, start, &exceptions),
            None => Err(Error::settings("missing, want an array of parameters, or a function of a seed")
                .hint("every model begins there")),
        };
        match start.map_err(|fault| faults.push(fault.at("start"))) {
            Ok((start, parameters, precision)) if faults.is_empty() => {
                Ok(Self { clients, start, parameters, precision, exceptions })
            }
            _ => Err(Error::all(faults)),
        }
    }

    /// Clients on other machines; only the start is known here.
    pub fn elsewhere(py: Python, start: &Bound<'_, PyAny>) -> Result<Self> {
        let exceptions = Arc::new(Exceptions::default());
        let (start, parameters, precision) = read_start(py, start, &exceptions).map_err(|fault| fault.at("start"))?;
        Ok(Self { clients: Vec::new(), start, parameters, precision, exceptions })
    }

    /// Puts into an experiment what the clients and the start say, where it is left out.
    pub fn fill_in(&self, experiment: &mut Table) {
        let precision = if self.precision == Precision::F32 { "f32" } else { "f64" };
        let mut fill_in = |section: &str, key: &str, value: Value| {
            let section = experiment.entry(section).or_insert_with(|| Value::Table(Table::new()));
            section.as_table_mut().map(|section| section.entry(key).or_insert(value).clone())
        };
        fill_in("data", "source", "own".into());
        if fill_in("model", "kind", "own".into()) == Some("own".into()) {
            fill_in("model", "parameters", (self.parameters as i64).into());
            fill_in("model", "precision", precision.into());
        }
    }

    /// Exceptions of the user's code, for whoever raises an error.
    pub fn exceptions(&self) -> Arc<Exceptions> {
        self.exceptions.clone()
    }

    /// The clients for every seed, and where their models begin.
    pub fn into_parts(self) -> (Population, OwnStart) {
        let truth: Option<Vec<usize>> = self.clients.iter().map(|client| client.truth).collect();
        let population = Population {
            true_clusters: truth.and_then(|truth| truth.iter().max().map(|last| last + 1)),
            clients: self.clients,
            shape: DataShape { form: Form::Own, ..DataShape::default() },
            ..Population::default()
        };
        (population, self.start)
    }
}

/// The clients of a dict; adds to the faults.
pub fn read_clients(given: &Bound<'_, PyAny>, exceptions: &Arc<Exceptions>, faults: &mut Vec<Error>) -> Vec<Client> {
    let Some(items) = given.cast::<PyMapping>().ok().and_then(|mapping| mapping.items().ok()) else {
        let message = format!("clients: got {}, want a dict of objects by id", type_name(given));
        faults.push(Error::settings(message));
        return Vec::new();
    };
    if items.is_empty() {
        faults.push(Error::settings("clients: got none, want at least 1"));
    }
    let mut clients = Vec::new();
    for item in items {
        let Ok((id, object)) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else { continue };
        match id.extract::<String>() {
            Ok(id) if !id.trim().is_empty() => {
                let before = faults.len();
                let client = read_client(&id, object, exceptions, faults);
                if faults.len() == before {
                    clients.extend(client);
                }
            }
            _ => faults.push(Error::settings(format!("clients: got the id {}, want a text", display(&id)))),
        }
    }
    clients
}

fn read_client(
    id: &str,
    object: Bound<'_, PyAny>,
    exceptions: &Arc<Exceptions>,
    faults: &mut Vec<Error>,
) -> Option<Client> {
    let faults = RefCell::new(faults);
    let fault = |message: String| faults.borrow_mut().push(wrong(format!("client {id}: {message}")));
    // `None` stands for an attribute that is not there, as a class may have it for a verb it leaves out.
    let attribute = |name: &str| match object.getattr_opt(name) {
        Ok(found) => found.filter(|value| !value.is_none()),
        Err(exception) => {
            fault(format!("{name}: {exception}"));
            None
        }
    };
    let verb = |name: &str, needed: bool| match attribute(name) {
        Some(method) if method.is_callable() => true,
        Some(other) => {
            fault(format!("{name}: got {}, want a method", type_name(&other)));
            false
        }
        None if needed => {
            fault(format!("{} has no method {name}", type_name(&object)));
            false
        }
        None => false,
    };
    verb("loss", true);
    verb("train", true);
    let (gradient, score, save, load) =
        (verb("gradient", false), verb("score", false), verb("save", false), verb("load", false));
    if save != load {
        let (one, other) = if save { ("save", "load") } else { ("load", "save") };
        fault(format!("{one} without {other}, want both or none"));
    }
    let rows = attribute("rows").map_or(1, |rows| match rows.extract::<u32>() {
        Ok(count @ 1..) => count as usize,
        _ => {
            fault(format!("rows: got {}, want a whole number of at least 1", display(&rows)));
            1
        }
    });
    let group = attribute("group").and_then(|group| {
        let refuse = |_| fault(format!("group: got {}, want a text", display(&group)));
        group.extract::<String>().map_err(refuse).ok()
    });
    let truth = attribute("truth").and_then(|truth| {
        let refuse = |_| fault(format!("truth: got {}, want the number of a cluster, from 0", display(&truth)));
        truth.extract::<u32>().map_err(refuse).ok()
    });
    let client = PythonClient {
        id: id.to_string(),
        object: object.clone().unbind(),
        rows,
        verbs: Verbs { gradient, score, save: save && load },
        exceptions: exceptions.clone(),
    };
    Client::own(Box::new(client), group, truth.map(|cluster| cluster as usize))
        .map_err(|error| faults.borrow_mut().push(error))
        .ok()
}

/// Where models begin, how many numbers they have, and at which precision.
fn read_start(
    py: Python,
    given: &Bound<'_, PyAny>,
    exceptions: &Arc<Exceptions>,
) -> Result<(OwnStart, usize, Precision)> {
    if !given.is_callable() {
        let (start, precision) = read_parameters(py, given, exceptions)?;
        let parameters = start.len();
        return Ok((OwnStart::At(Arc::new(start)), parameters, precision));
    }
    let (function, exceptions) = (given.clone().unbind(), exceptions.clone());
    let draw = move |seed: u64| {
        Python::attach(|py| {
            let drawn = function.bind(py).call1((seed,)).map_err(|raised| exceptions.error(py, raised.into()))?;
            read_parameters(py, &drawn, &exceptions)
        })
    };
    let (first, precision) = draw(0)?;
    Ok((OwnStart::Drawn(Arc::new(move |seed| draw(seed).map(|(start, _)| start))), first.len(), precision))
}

/// Parameters from anything that numpy converts to an array; all but single precision becomes double.
fn read_parameters(py: Python, given: &Bound<'_, PyAny>, exceptions: &Exceptions) -> Result<(Vec<f64>, Precision)> {
    let read = || -> Answer<(Vec<f64>, Precision)> {
        let array = py.import("numpy")?.call_method1("asarray", (given,))?;
        let untyped = array.cast::<PyUntypedArray>().map_err(PyErr::from)?;
        let precision =
            if untyped.dtype().is_equiv_to(&numpy::dtype::<f32>(py)) { Precision::F32 } else { Precision::F64 };
        let mut values = vec![0.0; untyped.shape().first().copied().unwrap_or(0)];
        if values.is_empty() || untyped.ndim() != 1 {
            let message = format!("got an array of shape {:?}, want one axis and at least 1 number", untyped.shape());
            return Err(wrong(message).into());
        }
        read_vector(&array, &mut values)?;
        Ok((values, precision))
    };
    read().map_err(|failure| exceptions.error(py, failure))
}
