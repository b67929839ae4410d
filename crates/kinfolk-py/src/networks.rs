//! Fitted networks, for `kinfolk.FamilyRegressor` and `FamilyClassifier`: what [`crate::fit::Fitted`] is for linear models.

use super::*;
use crate::fit::{Rows, predicted, unsound};
use kinfolk::data::understood;
use kinfolk::disk::folder::NewFolder;
use kinfolk::fit::{Input, NETWORK_FILES, SavedNetworks};
use numpy::PyArray2;
use pyo3::types::PyType;

/// Fitted networks.
#[pyclass(frozen, module = "kinfolk._kinfolk")]
pub struct FittedNetworks {
    pub(crate) saved: Arc<SavedNetworks>,
}

#[pymethods]
impl FittedNetworks {
    #[new]
    fn of_parts(py: Python, text: &str, networks: &[u8]) -> PyResult<Self> {
        let saved = SavedNetworks::of_parts(text, networks).map_err(|error| raise(py, &error))?;
        Ok(Self { saved: Arc::new(saved) })
    }

    /// Pickles and copies as the contents of its two files.
    #[expect(clippy::type_complexity, reason = "a type and its arguments")]
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyType>, (String, Bound<'py, PyBytes>))> {
        let (py, own) = (slf.py(), slf.get());
        let networks = own.saved.file("models.safetensors").map_err(|error| raise(py, &error))?;
        Ok((slf.get_type(), (own.file(py, "model.json")?, PyBytes::new(py, &networks))))
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
            saved.predict_batches(Input::Memory(&records), take).map(|_| ())
        })
    }

    /// What is said of clients by their rows, as json; and, where that is wanted, a model that knows the new ones.
    fn assign(&self, py: Python, rows: &Rows, add: bool) -> PyResult<(String, Option<Self>)> {
        let (saved, records) = (self.saved.clone(), rows.records.clone());
        let work = move || match add {
            false => saved.assign(Input::Memory(&records)).map(|assigned| (None, assigned)),
            true => saved.add(Input::Memory(&records)).map(|(saved, assigned)| (Some(saved), assigned)),
        };
        let (extended, assigned) = compute(py, &AtomicBool::new(false), work)?;
        let text = serde_json::to_string(&assigned).map_err(|error| unsound(py, error))?;
        Ok((text, extended.map(|saved| Self { saved: Arc::new(saved) })))
    }

    /// This model as one that goes on with an earlier one.
    fn following(&self, before: &Self) -> Self {
        Self { saved: Arc::new((*self.saved).clone().following(&before.saved)) }
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
        let taken = if replace { &[][..] } else { &NETWORK_FILES };
        let claimed = NewFolder::claim(&folder, taken.iter().copied())
            .map_err(|error| error.hint("save to another folder, or with replace=True"));
        claimed.and_then(|claimed| self.saved.write(claimed.path())).map_err(|error| raise(py, &error))
    }
}
