//! The images that come with the library, as arrays.

use super::*;
use kinfolk::data::images::Images;
use numpy::PyArray3;

/// Pixels of every image, row by row, and their labels.
type Arrays<'py> = (Bound<'py, PyArray3<u8>>, Bound<'py, PyArray1<i64>>);

/// The training and the test digits.
#[pyfunction]
pub fn digits(py: Python) -> PyResult<(Arrays, Arrays)> {
    let pools = kinfolk::data::digits::load().map_err(|error| raise(py, &error))?;
    Ok((arrays(py, &pools.train)?, arrays(py, &pools.test)?))
}

fn arrays<'py>(py: Python<'py>, images: &Images) -> PyResult<Arrays<'py>> {
    const SIDE: usize = 8;
    let pixels: Vec<u8> = (0..images.len()).flat_map(|index| images.pixels(index)).copied().collect();
    let labels = images.labels().iter().map(|&label| i64::from(label)).collect();
    Ok((PyArray1::from_vec(py, pixels).reshape([images.len(), SIDE, SIDE])?, PyArray1::from_vec(py, labels)))
}
