//! Python's way into Kinfolk: thin wrappers, no method and no number of their own.

mod background;
mod clients;
mod cluster;
mod columns;
mod digits;
mod errors;
mod fit;
mod flower;
mod mixture;
mod networks;
mod registry;
mod results;
mod run;
mod values;

use background::{Ending, attend, compute};
use clients::OwnClients;
use errors::raise;
use kinfolk::data::{DataShape, Form};
use kinfolk::experiment::Override;
use kinfolk::run::Options;
use kinfolk::run::venue::Venue;
use kinfolk::{Error, ErrorKind, Result};
use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::pymodule;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString, PyTuple};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use toml::{Table, Value};
use values::Settings;

#[pymodule]
mod _kinfolk {
    #[pymodule_export]
    use super::cluster::{
        ari, centre_separation, find, matching, misclustering, proximity, recovery_interval, separability, silhouette,
    };
    #[pymodule_export]
    use super::columns::{Columns, read_clients, read_rounds};
    #[pymodule_export]
    use super::digits::digits;
    #[pymodule_export]
    use super::errors::Error;
    #[pymodule_export]
    use super::fit::{Fitted, Rows, fit_rows, read_fitted};
    #[pymodule_export]
    use super::flower::{Site, fit_remote, run_remote, serve};
    #[pymodule_export]
    use super::mixture::{FittedMixture, fit_mixture};
    #[pymodule_export]
    use super::networks::FittedNetworks;
    #[pymodule_export]
    use super::registry::{datasets, methods, models, presets};
    #[pymodule_export]
    use super::results::{read_model, read_summary, result_table};
    #[pymodule_export]
    use super::run::run;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn tell_version(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
