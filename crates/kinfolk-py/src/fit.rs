//! `kinfolk.FamilyRegressor` and `FamilyClassifier`: tables in memory, fitting them, and what a fitted model is asked.

use super::*;
use crate::mixture::FittedMixture;
use crate::networks::FittedNetworks;
use crate::run::check_threads;
use arrow_array::ffi_stream::RecordBatchStreamReader;
use arrow_array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, RecordBatchReader, StringArray,
};
use arrow_pyarrow::FromPyArrow;
use arrow_schema::{Field, Schema, SchemaRef};
use kinfolk::compute::threads as pool;
use kinfolk::data::TableSettings;
use kinfolk::data::options::Task;
use kinfolk::data::understood;
use kinfolk::disk::folder::NewFolder;
use kinfolk::families::Covariance;
use kinfolk::fit::{self, FILES, FitSettings, FittedModel, Input, ModelChoice, PredictedRows, Records, Saved};
use kinfolk::models::{LinearSettings, MlpSettings, ModelSettings};
use kinfolk::run::Unwatched;
use kinfolk::settings::{self, Value, finish};
use numpy::{PyArray2, PyReadonlyArray1};
use pyo3::types::PyType;

/// A table in memory.
#[pyclass(frozen, module = "kinfolk._kinfolk")]
pub struct Rows {
    pub(crate) records: Records,
}

/// A number from 1 on, or nothing.
pub(crate) fn check_number(name: &str, value: Option<i64>, faults: &mut Vec<Error>) -> Option<usize> {
    value.map(|value| {
        usize::try_from(value).ok().filter(|value| *value > 0).unwrap_or_else(|| {
            faults.push(Error::settings(format!("{name}: got {value}, want at least 1, or None to find out")));
            1
        })
    })
}

pub(crate) fn check_seed(seed: i64, faults: &mut Vec<Error>) -> u64 {
    u64::try_from(seed).unwrap_or_else(|_| {
        faults.push(Error::settings(format!("seed: got {seed}, want at least 0")));
        0
    })
}

pub(crate) fn unsound(py: Python, error: impl std::fmt::Display) -> PyErr {
    raise(py, &Error::data(format!("the table: {error}")))
}

#[pymethods]
impl Rows {
    /// The rows of anything that offers Arrow's C stream.
    #[staticmethod]
    fn of_arrow(table: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = table.py();
        let reader = RecordBatchStreamReader::from_pyarrow_bound(table)?;
        let schema = reader.schema();
        let batches = reader.collect::<Result<Vec<RecordBatch>, _>>().map_err(|error| unsound(py, error))?;
        Self::of(py, schema, batches)
    }

    /// Columns with their names: arrays of floats or of integers of 64 bits, or lists of texts, in which None is missing.
    #[staticmethod]
    fn of_columns(py: Python, columns: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Self> {
        let batch = record(py, columns)?;
        Self::of(py, batch.schema(), vec![batch])
    }

    /// Names of the columns.
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.records.schema().fields().iter().map(|field| field.name().as_str()).collect()
    }

    /// Number of rows.
    fn __len__(&self) -> usize {
        self.records.batches().iter().map(RecordBatch::num_rows).sum()
    }

    /// The same rows under other names of the columns.
    fn renamed(&self, py: Python, names: Vec<String>) -> PyResult<Self> {
        let fields = self.records.schema().fields().iter().zip(names);
        let fields: Vec<Field> = fields.map(|(field, name)| field.as_ref().clone().with_name(name)).collect();
        self.reshaped(py, fields, |batch, _| batch.columns().to_vec())
    }

    /// The same rows with these columns beside them.
    fn with_columns(&self, py: Python, columns: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Self> {
        let more = record(py, columns)?;
        if self.__len__() != more.num_rows() {
            return Err(unsound(py, format!("{} rows beside {}", more.num_rows(), self.__len__())));
        }
        let more_schema = more.schema();
        let fields = self.records.schema().fields().iter().chain(more_schema.fields());
        self.reshaped(py, fields.map(|field| field.as_ref().clone()).collect(), |batch, begin| {
            let more = more.slice(begin, batch.num_rows());
            batch.columns().iter().chain(more.columns()).cloned().collect()
        })
    }

    /// The same rows without a column.
    fn without(&self, py: Python, name: &str) -> PyResult<Self> {
        let fields = || self.records.schema().fields().iter().enumerate().filter(|(_, field)| field.name() != name);
        self.reshaped(py, fields().map(|(_, field)| field.as_ref().clone()).collect(), |batch, _| {
            fields().map(|(place, _)| batch.column(place).clone()).collect()
        })
    }
}

impl Rows {
    pub(crate) fn count(&self) -> usize {
        self.__len__()
    }

    fn of(py: Python, schema: SchemaRef, batches: Vec<RecordBatch>) -> PyResult<Self> {
        let records = Records::new(schema, batches).map_err(|error| raise(py, &error))?;
        Ok(Self { records })
    }

    /// Every batch with other columns, which are made from it and the number of its first row.
    fn reshaped(
        &self,
        py: Python,
        fields: Vec<Field>,
        columns: impl Fn(&RecordBatch, usize) -> Vec<ArrayRef>,
    ) -> PyResult<Self> {
        let schema = Arc::new(Schema::new(fields));
        let mut batches = Vec::new();
        let mut begin = 0;
        for batch in self.records.batches() {
            let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let batch = RecordBatch::try_new_with_options(schema.clone(), columns(batch, begin), &rows);
            batches.push(batch.map_err(|error| unsound(py, error))?);
            begin += batches.last().map_or(0, RecordBatch::num_rows);
        }
        Self::of(py, schema, batches)
    }
}

/// Columns as one batch.
fn record(py: Python, columns: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<RecordBatch> {
    let column = |(name, cells): (String, Bound<'_, PyAny>)| -> PyResult<(String, ArrayRef, bool)> {
        let array: ArrayRef = if let Ok(numbers) = cells.extract::<PyReadonlyArray1<f64>>() {
            Arc::new(numbers.as_array().iter().copied().collect::<Float64Array>())
        } else if let Ok(numbers) = cells.extract::<PyReadonlyArray1<i64>>() {
            Arc::new(numbers.as_array().iter().copied().collect::<Int64Array>())
        } else {
            Arc::new(cells.extract::<Vec<Option<String>>>()?.into_iter().collect::<StringArray>())
        };
        Ok((name, array, true))
    };
    let columns = columns.into_iter().map(column).collect::<PyResult<Vec<_>>>()?;
    RecordBatch::try_from_iter_with_nullable(columns).map_err(|error| unsound(py, error))
}

/// What was fitted.
#[pyclass(frozen, module = "kinfolk._kinfolk")]
pub struct Fitted {
    saved: Arc<Saved>,
}

/// Fits rows as `kinfolk fit` fits a file.
#[pyfunction]
#[pyo3(name = "fit", signature = (rows, *, client, target, classes, model, group, time, part, weight, drop, words, missing, families, curves, interactions, covariance, quick, seed, threads))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword")]
pub fn fit_rows(
    py: Python,
    rows: &Rows,
    client: String,
    target: String,
    classes: bool,
    model: Option<&str>,
    group: Option<String>,
    time: Option<String>,
    part: Option<String>,
    weight: Option<String>,
    drop: Vec<String>,
    words: Vec<String>,
    missing: &str,
    families: Option<i64>,
    curves: bool,
    interactions: bool,
    covariance: Option<&str>,
    quick: bool,
    seed: i64,
    threads: Option<i64>,
) -> PyResult<Py<PyAny>> {
    let mut faults = Vec::new();
    let threads = check_threads(threads, &mut faults);
    let families = check_number("families", families, &mut faults);
    let refuse_missing = missing == "refuse";
    if !["fill", "refuse"].contains(&missing) {
        faults.push(Error::settings(format!("missing: got {missing:?}, want \"fill\" or \"refuse\"")));
    }
    let (linear, network) = (LinearSettings::NAME, MlpSettings::NAME);
    let model = match model {
        None => ModelChoice::Auto,
        Some(word) if word == linear => ModelChoice::Linear,
        Some(word) if word == network => ModelChoice::Network,
        Some(other) => {
            let message = format!("model: got {other:?}, want {linear:?}, {network:?}, or None to find out");
            faults.push(Error::settings(message));
            ModelChoice::Auto
        }
    };
    let covariance = covariance.and_then(|word| {
        let known = <Covariance as settings::Field>::parse(&Value::from(word));
        if known.is_none() {
            let words = "intercept, scalar, intercept-slopes, diagonal, full";
            faults.push(Error::settings(format!("covariance: got {word:?}, want one of {words}, or None")));
        }
        known
    });
    let seed = check_seed(seed, &mut faults);
    finish(faults).map_err(|error| raise(py, &error))?;
    let (target, task) = (Some(target), if classes { Task::Classification } else { Task::Regression });
    let table =
        TableSettings { client, target, group, time, part, weight, drop, words, task, ..TableSettings::default() };
    let (components, straight, additive) = (None, !curves, !interactions);
    let settings =
        FitSettings { table, model, families, components, refuse_missing, straight, additive, covariance, quick, seed };
    let options = Options { threads, ..Options::default() };
    let (stop, records) = (options.stop.clone(), rows.records.clone());
    let work = move || fit::fit_model_records(records, settings, &options, &mut Unwatched, &mut |_| {});
    of_model(py, compute(py, &stop, work)?)
}

/// A fitted model as Python sees it.
fn of_model(py: Python, model: FittedModel) -> PyResult<Py<PyAny>> {
    match model {
        FittedModel::Families(saved) => Ok(Py::new(py, Fitted { saved: Arc::new(saved) })?.into_any()),
        FittedModel::Networks(saved) => Ok(Py::new(py, FittedNetworks { saved: Arc::new(saved) })?.into_any()),
        FittedModel::Mixture(saved) => Ok(Py::new(py, FittedMixture { saved: Arc::new(saved) })?.into_any()),
    }
}

/// The model in a folder, of a target or a mixture.
#[pyfunction]
pub fn read_fitted(py: Python, folder: PathBuf) -> PyResult<Py<PyAny>> {
    of_model(py, FittedModel::read(&folder).map_err(|error| raise(py, &error))?)
}

/// Predictions of rows, batch by batch, and what serves each row where that is wanted.
pub(crate) fn predicted<'py>(
    py: Python<'py>,
    rows: &Rows,
    threads: Option<i64>,
    with_serving: bool,
    width: usize,
    predict: impl FnOnce(&mut dyn FnMut(PredictedRows) -> Result<()>) -> Result<()> + Send + 'static,
) -> PyResult<(Bound<'py, PyArray2<f64>>, Vec<String>)> {
    let mut faults = Vec::new();
    let threads = check_threads(threads, &mut faults);
    finish(faults).map_err(|error| raise(py, &error))?;
    let work = move || {
        let (mut values, mut served_by) = (Vec::new(), Vec::new());
        let mut take = |rows: PredictedRows| {
            values.extend(rows.values);
            if with_serving {
                served_by.extend(rows.served_by.iter().map(|by| by.to_string()));
            }
            Ok(())
        };
        pool(threads)?.install(|| predict(&mut take))?;
        Ok((values, served_by))
    };
    let (values, served_by) = compute(py, &AtomicBool::new(false), work)?;
    Ok((PyArray1::from_vec(py, values).reshape([rows.count(), width])?, served_by))
}

#[pymethods]
impl Fitted {
    #[new]
    fn of_text(py: Python, text: &str) -> PyResult<Self> {
        let saved = Saved::of_text(text).map_err(|error| raise(py, &error))?;
        Ok(Self { saved: Arc::new(saved) })
    }

    /// Pickles and copies as the text of its model.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyType>, (String,))> {
        Ok((slf.get_type(), (slf.get().file(slf.py(), "model.json")?,)))
    }

    /// The column that names the client.
    #[getter]
    fn client(&self) -> &str {
        &self.saved.client
    }

    /// The column that is predicted.
    #[getter]
    fn target(&self) -> &str {
        &self.saved.target
    }

    /// Its classes; none where it is a number.
    #[getter]
    fn classes(&self) -> &[String] {
        &self.saved.classes
    }

    /// Names of the clients that took part.
    #[getter]
    fn clients(&self) -> &[String] {
        &self.saved.names
    }

    /// The columns that it was fitted with, used or not.
    #[getter]
    fn columns(&self) -> Vec<&str> {
        self.saved.understood.iter().map(|column| column.column.as_str()).collect()
    }

    /// What was understood of every column, in a line.
    #[getter]
    fn understood(&self) -> Vec<String> {
        understood::lines(&self.saved.understood)
    }

    /// Of every row what is expected and the ends of its interval, or the probabilities of all classes; and, where that is wanted,
    /// what serves it.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        rows: &Rows,
        threads: Option<i64>,
        with_serving: bool,
    ) -> PyResult<(Bound<'py, PyArray2<f64>>, Vec<String>)> {
        let (saved, records) = (self.saved.clone(), rows.records.clone());
        let width = if self.saved.classes.is_empty() { 3 } else { self.saved.classes.len() };
        predicted(py, rows, threads, with_serving, width, move |take| {
            fit::predict_batches(&saved, Input::Memory(&records), take).map(|_| ())
        })
    }

    /// What is said of clients by their rows, as json; and, where that is wanted, a model that knows the new ones.
    fn assign(&self, py: Python, rows: &Rows, add: bool) -> PyResult<(String, Option<Self>)> {
        let (saved, records) = (self.saved.clone(), rows.records.clone());
        let work = move || match add {
            false => fit::assign(&saved, Input::Memory(&records)).map(|assigned| (None, assigned)),
            true => fit::add(&saved, Input::Memory(&records)).map(|(saved, assigned)| (Some(saved), assigned)),
        };
        let (extended, assigned) = compute(py, &AtomicBool::new(false), work)?;
        let text = serde_json::to_string(&assigned).map_err(|error| unsound(py, error))?;
        Ok((text, extended.map(|saved| Self { saved: Arc::new(saved) })))
    }

    /// This model as one that goes on with an earlier one.
    fn following(&self, before: &Self) -> Self {
        Self { saved: Arc::new(fit::follow(&before.saved, (*self.saved).clone())) }
    }

    /// What was found, as json.
    fn shown(&self, py: Python) -> PyResult<String> {
        serde_json::to_string(&self.saved.shown()).map_err(|error| unsound(py, error))
    }

    /// What was found in words: in all, of a family, or of a client.
    #[pyo3(signature = (family = None, client = None))]
    fn show(&self, py: Python, family: Option<usize>, client: Option<&str>) -> PyResult<String> {
        let shown = match (client, family) {
            (Some(name), _) => fit::show_client(&self.saved, name),
            (None, Some(number)) => fit::show_family(&self.saved, number),
            (None, None) => Ok(fit::show(&self.saved)),
        };
        shown.map_err(|error| raise(py, &error))
    }

    /// The text of a file of its folder.
    fn file(&self, py: Python, name: &str) -> PyResult<String> {
        self.saved.file(name).map_err(|error| raise(py, &error))
    }

    /// Writes its folder.
    fn save(&self, py: Python, folder: PathBuf, replace: bool) -> PyResult<()> {
        let taken = if replace { &[][..] } else { &FILES };
        let claimed = NewFolder::claim(&folder, taken.iter().copied())
            .map_err(|error| error.hint("save to another folder, or with replace=True"));
        claimed.and_then(|claimed| self.saved.write(claimed.path())).map_err(|error| raise(py, &error))
    }
}
