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

/// The exception of an error. Options are keywords here, and are spelt like them.
pub fn raise(py: Python, error: &kinfolk::Error) -> PyErr {
    let exception = Error::new_err(with_keywords(&error.to_string()));
    let value = exception.value(py);
    let attributes = value.setattr("kind", error.kind().word()).and_then(|()| value.setattr("told", error.told()));
    match attributes {
        Ok(()) => exception,
        Err(failure) => failure,
    }
}

/// `--path-values` becomes `path_values`, and `--set` falls away. What stands in backticks is typed in a shell.
pub fn with_keywords(message: &str) -> String {
    let (mut text, mut quoted) = (String::with_capacity(message.len()), false);
    for word in message.split_inclusive([' ', '\n', '`', ',', ':']) {
        let option =
            word.strip_prefix("--").filter(|rest| !quoted && rest.starts_with(|c: char| c.is_ascii_lowercase()));
        match option {
            Some("set ") => {}
            Some(option) => text.push_str(&match option.strip_prefix("resume") {
                Some(rest) => format!("resume=True{rest}"),
                None => option.replace('-', "_"),
            }),
            None => text.push_str(word),
        }
        quoted ^= word.ends_with('`');
    }
    text
}
