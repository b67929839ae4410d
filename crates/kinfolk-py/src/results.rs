//! The result table and the models of a finished run folder.

use super::*;
use kinfolk::modelfile::{Values, tensors};
use kinfolk::record::Summary;
use kinfolk::report::table::{results, results_with_notes};

/// The result table in several forms: as the program prints it, its headings and rows, and the remarks below it.
type Results = (String, Vec<String>, Vec<Vec<String>>, Vec<String>);

/// The text of a run folder's summary.json, without which a run is not finished.
#[pyfunction]
pub fn read_summary(py: Python, folder: PathBuf) -> PyResult<String> {
    let path = folder.join("summary.json");
    std::fs::read_to_string(&path).map_err(|error| {
        let error = Error::io("reading", &path, error);
        let unfinished = folder.join("experiment.toml").exists();
        raise(
            py,
            &error.hint(match unfinished {
                true => "the run is not finished: go on with out and resume=True",
                false => "want the folder of a finished run",
            }),
        )
    })
}

/// The result table of a summary.json.
#[pyfunction]
pub fn result_table(py: Python, summary: &str) -> PyResult<Results> {
    let summary: Summary = serde_json::from_str(summary)
        .map_err(|error| raise(py, &Error::new(ErrorKind::Io, format!("summary.json: {error}"))))?;
    let table = results(&summary);
    let titles = table.columns().iter().map(|column| column.title.clone()).collect();
    let remarks = summary.methods.iter().flat_map(|method| {
        let remarks = method.remarks().into_iter();
        remarks
            .map(|remark| format!("{}: {}{}", method.label, if remark.warning { "warning: " } else { "" }, remark.text))
    });
    Ok((results_with_notes(&summary), titles, table.rows().to_vec(), remarks.collect()))
}

/// The tensors of a model file, by name.
#[pyfunction]
pub fn read_model(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for tensor in py.detach(|| tensors(&path)).map_err(|error| raise(py, &error))? {
        match tensor.values {
            Values::F32(values) => dict.set_item(tensor.name, PyArray1::from_vec(py, values).reshape(tensor.shape)?)?,
            Values::F64(values) => dict.set_item(tensor.name, PyArray1::from_vec(py, values).reshape(tensor.shape)?)?,
        }
    }
    Ok(dict)
}
