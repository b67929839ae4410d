//! The one exception.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    kinfolk,
    Error,
    PyException,
    "What was at fault: the message says where, what was found and what was wanted; `kind` is a word to act on."
);

/// Options are keywords here; settings are keywords themselves and need no prefix.
fn as_keyword(option: &str) -> String {
    match option {
        "set " => String::new(),
        "resume" => "resume=True".into(),
        option => option.into(),
    }
}

/// The exception of an error.
pub fn raise(py: Python, error: &kinfolk::Error) -> PyErr {
    let exception = Error::new_err(error.spelling(as_keyword));
    let value = exception.value(py);
    let attributes = value.setattr("kind", error.kind().word()).and_then(|()| value.setattr("told", error.told()));
    match attributes {
        Ok(()) => exception,
        Err(failure) => failure,
    }
}
