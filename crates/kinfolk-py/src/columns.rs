//! Tables of a run: columns for numpy, and for whatever reads Arrow's C stream.

use super::*;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray};
use kinfolk::record::table::{Cells, Column, TableRow, read_columns};
use kinfolk::record::{ClientRecord, RoundRecord};
use numpy::Element;
use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyValueError};
use pyo3::types::{PyCapsule, PyType};

/// Columns of one length, in order.
#[pyclass(frozen, module = "kinfolk._kinfolk")]
pub struct Columns {
    columns: Vec<Column>,
}

/// A column as Python pickles it: its name, what its cells are, and the cells.
type Pickled<'py> = (String, String, Bound<'py, PyAny>);

/// The columns of a run folder's rounds.csv.
#[pyfunction]
pub fn read_rounds(py: Python, folder: PathBuf) -> PyResult<Columns> {
    read::<RoundRecord>(py, folder)
}

/// The columns of a run folder's clients.csv.
#[pyfunction]
pub fn read_clients(py: Python, folder: PathBuf) -> PyResult<Columns> {
    read::<ClientRecord>(py, folder)
}

fn read<R: TableRow>(py: Python, folder: PathBuf) -> PyResult<Columns> {
    Ok(Columns { columns: py.detach(|| read_columns::<R>(&folder)).map_err(|error| raise(py, &error))? })
}

/// An array of the cells, or of floats with NaN where some are missing.
fn array<'py, T: Element + Copy>(py: Python<'py>, cells: &[Option<T>], to_float: fn(T) -> f64) -> Bound<'py, PyAny> {
    match cells.iter().copied().collect::<Option<Vec<T>>>() {
        Some(cells) => PyArray1::from_vec(py, cells).into_any(),
        None => PyArray1::from_iter(py, cells.iter().map(|cell| cell.map_or(f64::NAN, to_float))).into_any(),
    }
}

#[pymethods]
impl Columns {
    /// Columns as `__reduce__` takes them apart.
    #[new]
    fn new(columns: Vec<Pickled>) -> PyResult<Self> {
        let column = |(name, kind, cells): Pickled| {
            let cells = match kind.as_str() {
                "texts" => Cells::Texts(cells.extract()?),
                "wholes" => Cells::Wholes(cells.extract()?),
                "numbers" => Cells::Numbers(cells.extract()?),
                "flags" => Cells::Flags(cells.extract()?),
                other => {
                    let message = format!("column {name}: got {other}, want texts, wholes, numbers or flags");
                    return Err(PyValueError::new_err(message));
                }
            };
            Ok(Column { name, cells })
        };
        Ok(Self { columns: columns.into_iter().map(column).collect::<PyResult<_>>()? })
    }

    /// Pickles and copies as lists, in which a missing number is None.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyType>, (Vec<Pickled<'py>>,))> {
        let py = slf.py();
        let column = |column: &Column| -> PyResult<Pickled<'py>> {
            let (kind, cells) = match &column.cells {
                Cells::Texts(cells) => ("texts", PyList::new(py, cells)?),
                Cells::Wholes(cells) => ("wholes", PyList::new(py, cells)?),
                Cells::Numbers(cells) => ("numbers", PyList::new(py, cells)?),
                Cells::Flags(cells) => ("flags", PyList::new(py, cells)?),
            };
            Ok((column.name.clone(), kind.to_string(), cells.into_any()))
        };
        let columns = slf.get().columns.iter().map(column).collect::<PyResult<_>>()?;
        Ok((slf.get_type(), (columns,)))
    }

    /// Names of the columns.
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|column| column.name.as_str()).collect()
    }

    /// Number of rows.
    #[getter]
    fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.cells.len())
    }

    /// Texts as a list; numbers and truth values as an array, of floats with NaN where some are missing.
    fn values<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let column = self.columns.iter().find(|column| column.name == name);
        let column = column.ok_or_else(|| PyKeyError::new_err(name.to_string()))?;
        Ok(match &column.cells {
            Cells::Texts(cells) => PyList::new(py, cells)?.into_any(),
            Cells::Numbers(cells) => array(py, cells, |cell| cell),
            Cells::Wholes(cells) => array(py, cells, |cell| cell as f64),
            Cells::Flags(cells) => array(py, cells, |cell| f64::from(u8::from(cell))),
        })
    }

    /// Arrow's C stream of one batch. What is missing is null, and so are empty texts.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol allows ignoring the requested types.
        drop(requested_schema);
        let array = |column: &Column| -> (String, ArrayRef, bool) {
            let array: ArrayRef = match &column.cells {
                Cells::Texts(cells) => Arc::new(
                    cells.iter().map(|cell| Some(cell).filter(|cell| !cell.is_empty())).collect::<StringArray>(),
                ),
                Cells::Wholes(cells) => Arc::new(cells.iter().collect::<Int64Array>()),
                Cells::Numbers(cells) => Arc::new(cells.iter().collect::<Float64Array>()),
                Cells::Flags(cells) => Arc::new(cells.iter().collect::<BooleanArray>()),
            };
            (column.name.clone(), array, true)
        };
        let batch = RecordBatch::try_from_iter_with_nullable(self.columns.iter().map(array))
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let schema = batch.schema();
        let stream = FFI_ArrowArrayStream::new(Box::new(RecordBatchIterator::new([Ok(batch)], schema)));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}
