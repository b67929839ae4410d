//! Settings written in Python: dicts, lists, numbers and texts as the values of an experiment file.

use super::*;
use pyo3::types::{PyBool, PyFloat, PyInt};

/// Upper bound on nesting, which also ends a list that contains itself.
const DEEPEST: usize = 16;

/// Converts settings, and collects faults.
#[derive(Default)]
pub struct Settings {
    /// The faults so far.
    pub faults: Vec<Error>,
}

impl Settings {
    /// An experiment as a dict. A single method need not be in a list.
    pub fn experiment(&mut self, given: &Bound<'_, PyMapping>) -> PyResult<Table> {
        let mut table = self.table("experiment", given, 0)?;
        if let Some(method @ Value::Table(_)) = table.get_mut("method") {
            *method = Value::Array(vec![method.clone()]);
        }
        Ok(table)
    }

    /// Keywords as overrides: dotted names, dicts in dicts, or both.
    pub fn overrides(&mut self, given: &Bound<'_, PyDict>) -> PyResult<Vec<Override>> {
        let mut overrides = Vec::new();
        for (name, value) in given {
            let name = name.extract::<String>()?;
            if let Some(value) = self.value(&name, &value, 0)? {
                flatten(name.split('.').map(str::to_string).collect(), value, &mut overrides);
            }
        }
        Ok(overrides)
    }

    fn table(&mut self, place: &str, given: &Bound<'_, PyMapping>, depth: usize) -> PyResult<Table> {
        let mut table = Table::new();
        for item in given.items()?.iter() {
            let (key, value) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
            let Ok(key) = key.extract::<String>() else {
                self.faults.push(Error::settings(format!("{place}: got the key {}, want a text", key.repr()?)));
                continue;
            };
            let inner = if depth == 0 { key.clone() } else { format!("{place}.{key}") };
            if let Some(value) = self.value(&inner, &value, depth + 1)? {
                table.insert(key, value);
            }
        }
        Ok(table)
    }

    fn list<'py>(
        &mut self,
        place: &str,
        items: impl Iterator<Item = Bound<'py, PyAny>>,
        depth: usize,
    ) -> PyResult<Value> {
        let mut list = Vec::new();
        for item in items {
            list.extend(self.value(place, &item, depth + 1)?);
        }
        Ok(Value::Array(list))
    }

    /// `None` where it cannot be a setting, after adding a fault.
    fn value(&mut self, place: &str, given: &Bound<'_, PyAny>, depth: usize) -> PyResult<Option<Value>> {
        if depth > DEEPEST {
            self.faults.push(Error::settings(format!("{place}: got lists or dicts {DEEPEST} deep, want fewer")));
            return Ok(None);
        }
        // True is an int in Python.
        Ok(Some(if let Ok(flag) = given.cast::<PyBool>() {
            Value::Boolean(flag.is_true())
        } else if let Ok(text) = given.cast::<PyString>() {
            Value::String(text.to_cow()?.into_owned())
        } else if let Ok(number) = given.cast::<PyInt>() {
            match number.extract() {
                Ok(number) => Value::Integer(number),
                Err(_) => return self.refuse(place, &format!("{number}"), "a number of at most 64 bits"),
            }
        } else if let Ok(number) = given.cast::<PyFloat>() {
            Value::Float(number.value())
        } else if let Ok(list) = given.cast::<PyList>() {
            self.list(place, list.iter(), depth)?
        } else if let Ok(list) = given.cast::<PyTuple>() {
            self.list(place, list.iter(), depth)?
        } else if let Ok(table) = given.cast::<PyMapping>() {
            Value::Table(self.table(place, table, depth.max(1))?)
        } else if given.hasattr("tolist")? {
            // Arrays and numbers of numpy and its kin.
            return self.value(place, &given.call_method0("tolist")?, depth + 1);
        } else if let Ok(path) = given.extract::<PathBuf>() {
            Value::String(path.to_string_lossy().into_owned())
        } else if given.is_none() {
            return self.refuse(place, "None", "a value; leave it out for its default");
        } else {
            return self.refuse(place, &given.get_type().to_string(), "a text, a number, a bool, a list or a dict");
        }))
    }

    fn refuse(&mut self, place: &str, found: &str, wanted: &str) -> PyResult<Option<Value>> {
        self.faults.push(Error::settings(format!("{place}: got {found}, want {wanted}")));
        Ok(None)
    }
}

/// Flattens dicts down to single settings, whose value may be a table.
fn flatten(path: Vec<String>, value: Value, overrides: &mut Vec<Override>) {
    let depth = match path[0].as_str() {
        "data" | "model" | "faults" | "privacy" => 2,
        "method" => 3,
        _ => 1,
    };
    match value {
        Value::Table(table) if path.len() < depth => {
            for (key, value) in table {
                flatten([path.as_slice(), &[key]].concat(), value, overrides);
            }
        }
        value => overrides.push(Override::new(path, value)),
    }
}
