//! `kinfolk.FamilyMixture`: rows without a target.

use super::*;
use crate::fit::{Rows, check_number, check_seed, predicted, unsound};
use crate::run::check_threads;
use kinfolk::data::TableSettings;
use kinfolk::data::understood;
use kinfolk::disk::folder::NewFolder;
use kinfolk::fit::{self, FitSettings, FittedModel, Input, MIXTURE_FILES, SavedMixture};
use kinfolk::run::Unwatched;
use kinfolk::settings::finish;
use numpy::{PyArray2, PyArray3};
use pyo3::types::PyType;

/// A fitted mixture.
#[pyclass(frozen, module = "kinfolk._kinfolk")]
pub struct FittedMixture {
    pub(crate) saved: Arc<SavedMixture>,
}

/// Fits rows as `kinfolk fit` without a target fits a file.
#[pyfunction]
#[pyo3(signature = (rows, *, client, group, time, part, drop, families, components, seed, threads))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword")]
pub fn fit_mixture(
    py: Python,
    rows: &Rows,
    client: String,
    group: Option<String>,
    time: Option<String>,
    part: Option<String>,
    drop: Vec<String>,
    families: Option<i64>,
    components: Option<i64>,
    seed: i64,
    threads: Option<i64>,
) -> PyResult<FittedMixture> {
    let mut faults = Vec::new();
    let threads = check_threads(threads, &mut faults);
    let families = check_number("families", families, &mut faults);
    let components = check_number("components", components, &mut faults);
    let seed = check_seed(seed, &mut faults);
    finish(faults).map_err(|error| raise(py, &error))?;
    let table = TableSettings { client, group, time, part, drop, ..TableSettings::default() };
    let settings = FitSettings { table, families, components, seed, ..FitSettings::default() };
    let options = Options { threads, ..Options::default() };
    let (stop, records) = (options.stop.clone(), rows.records.clone());
    let work = move || fit::fit_mixture_records(records, settings, &options, &mut Unwatched, &mut |_| {});
    Ok(FittedMixture { saved: Arc::new(compute(py, &stop, work)?) })
}

#[pymethods]
impl FittedMixture {
    #[new]
    fn of_text(py: Python, text: &str) -> PyResult<Self> {
        match FittedModel::of_text(text).map_err(|error| raise(py, &error))? {
            FittedModel::Mixture(saved) => Ok(Self { saved: Arc::new(saved) }),
            _ => Err(unsound(py, "a model of a target, want a mixture")),
        }
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

    /// Weights, means and covariances of the components, in the table's units.
    #[expect(clippy::type_complexity, reason = "three arrays")]
    fn components<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray2<f64>>, Bound<'py, PyArray3<f64>>)> {
        let (means, covariances, weights) = self.saved.in_units();
        let (count, columns) = (weights.len(), self.saved.features().len());
        Ok((
            PyArray1::from_vec(py, weights),
            PyArray1::from_vec(py, means).reshape([count, columns])?,
            PyArray1::from_vec(py, covariances).reshape([count, columns, columns])?,
        ))
    }

    /// Of every row the probabilities of all components, the log density, and 1 for an outlier; and what serves it.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        rows: &Rows,
        threads: Option<i64>,
    ) -> PyResult<(Bound<'py, PyArray2<f64>>, Vec<String>)> {
        let (saved, records) = (self.saved.clone(), rows.records.clone());
        let width = self.saved.shown().components.len() + 2;
        predicted(py, rows, threads, true, width, move |take| {
            fit::predict_component_batches(&saved, Input::Memory(&records), take).map(|_| ())
        })
    }

    /// What is said of new clients, as json. None can be added.
    fn assign(&self, py: Python, rows: &Rows, add: bool) -> PyResult<(String, Option<Self>)> {
        if add {
            let error = Error::settings("add: clients cannot be added to a model without a target");
            return Err(raise(py, &error.hint("fit the rows of all clients")));
        }
        let (saved, records) = (self.saved.clone(), rows.records.clone());
        let work = move || fit::assign_by_components(&saved, Input::Memory(&records));
        let assigned = compute(py, &AtomicBool::new(false), work)?;
        Ok((serde_json::to_string(&assigned).map_err(|error| unsound(py, error))?, None))
    }

    /// What was found, as json.
    fn shown(&self, py: Python) -> PyResult<String> {
        serde_json::to_string(&self.saved.shown()).map_err(|error| unsound(py, error))
    }

    /// What was found in words: in all, of a family, or of a client.
    #[pyo3(signature = (family = None, client = None))]
    fn show(&self, py: Python, family: Option<usize>, client: Option<&str>) -> PyResult<String> {
        let shown = match (client, family) {
            (Some(name), _) => self.saved.show_client(name),
            (None, Some(number)) => self.saved.show_family(number),
            (None, None) => Ok(self.saved.show()),
        };
        shown.map_err(|error| raise(py, &error))
    }

    /// The text of a file of its folder.
    fn file(&self, py: Python, name: &str) -> PyResult<String> {
        let bytes = self.saved.file(name).map_err(|error| raise(py, &error))?;
        String::from_utf8(bytes).map_err(|error| unsound(py, error))
    }

    /// Writes its folder.
    fn save(&self, py: Python, folder: PathBuf, replace: bool) -> PyResult<()> {
        let taken = if replace { &[][..] } else { &MIXTURE_FILES };
        let claimed = NewFolder::claim(&folder, taken.iter().copied())
            .map_err(|error| error.hint("save to another folder, or with replace=True"));
        claimed.and_then(|claimed| self.saved.write(claimed.path())).map_err(|error| raise(py, &error))
    }
}
