//! `kinfolk.cluster`: clustering of numpy arrays, and quality of clusterings.

use super::*;
use crate::run::check_threads;
use kinfolk::clustering::convex::{Certificate, Path};
use kinfolk::clustering::{Clustering, Found, Points, Search, quality};
use kinfolk::compute::threads as threads_of;
use kinfolk::data::points::PointTable;
use kinfolk::rng::Key;
use kinfolk::settings::finish;
use numpy::{PyArray2, PyArrayDyn};

/// Anything that numpy converts to an array of numbers with these dimensions, as row-major floats.
fn floats<'py>(
    given: &Bound<'py, PyAny>,
    name: &str,
    dimensions: usize,
    wanted: &str,
) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
    let py = given.py();
    let numpy = PyModule::import(py, "numpy")?;
    let refuse =
        |kind, found: String, wanted| raise(py, &Error::new(kind, format!("{name}: got {found}, want {wanted}")));
    let numbers = "an array of numbers";
    let array = numpy.call_method1("asarray", (given,));
    let array = array.map_err(|exception| refuse(ErrorKind::Data, exception.value(py).to_string(), numbers))?;
    let array = array.cast_into::<PyUntypedArray>()?;
    if !b"biuf".contains(&array.dtype().kind()) {
        return Err(refuse(ErrorKind::Data, format!("the type {}", array.dtype()), numbers));
    }
    if array.ndim() != dimensions {
        return Err(refuse(ErrorKind::Shape, format!("the shape {}", array.getattr("shape")?), wanted));
    }
    Ok(numpy.call_method1("ascontiguousarray", (array, "float64"))?.cast_into()?)
}

fn table(given: &Bound<'_, PyAny>, standardise: bool) -> PyResult<PointTable> {
    let points = floats(given, "points", 2, "two dimensions: one row a point")?;
    let columns = (0..points.shape()[1]).map(|column| column.to_string()).collect();
    let mut table = PointTable::new(columns, points.to_vec()?);
    table.points().map_err(|error| raise(given.py(), &error))?;
    if standardise {
        table.standardise();
    }
    Ok(table)
}

/// Cluster labels as integers; −1 stands for no cluster.
fn labels(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<i64>> {
    let py = given.py();
    let numbers = floats(given, name, 1, "one dimension")?.to_vec()?;
    let label = |(at, &number): (usize, &f64)| {
        // Clusters may come as floats out of a table with missing numbers elsewhere.
        let whole = (-1.0..9e15).contains(&number) && number.fract() == 0.0;
        if whole { Ok(number as i64) } else { Err((at, number)) }
    };
    numbers.iter().enumerate().map(label).collect::<Result<_, _>>().map_err(|(at, number)| {
        let message =
            format!("{name}: got {number} at place {at}, want whole numbers of at least 0, or -1 for no cluster");
        raise(py, &Error::data(message))
    })
}

fn count(name: &str, given: Option<i64>, least: u8, faults: &mut Vec<Error>) -> Option<usize> {
    let given = given?;
    if given < 0 {
        faults.push(Error::settings(format!("{name}: got {given}, want at least {least}")));
    }
    usize::try_from(given).ok()
}

/// Finds clusters as `kinfolk cluster` does.
#[pyfunction]
#[pyo3(signature = (points, method, *, clusters = None, lambda_ = None, path = false, weights = None, neighbours = None,
    decay = None, starts = None, path_values = None, seed = 0, standardise = false, threads = None))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword")]
pub fn find<'py>(
    py: Python<'py>,
    points: &Bound<'py, PyAny>,
    method: String,
    clusters: Option<i64>,
    lambda_: Option<f64>,
    path: bool,
    weights: Option<String>,
    neighbours: Option<i64>,
    decay: Option<f64>,
    starts: Option<i64>,
    path_values: Option<i64>,
    seed: i64,
    standardise: bool,
    threads: Option<i64>,
) -> PyResult<Bound<'py, PyTuple>> {
    let mut faults = Vec::new();
    let thread_count = check_threads(threads, &mut faults);
    let search = Search {
        method: Some(method),
        clusters: count("clusters", clusters, 1, &mut faults),
        lambda: lambda_,
        path,
        weights,
        neighbours: count("neighbours", neighbours, 1, &mut faults),
        decay,
        starts: count("starts", starts, 1, &mut faults),
        path_values: count("path_values", path_values, 2, &mut faults),
        seed: count("seed", Some(seed), 0, &mut faults).unwrap_or_default() as u64,
    };
    let (_, request) = search.request(&mut faults);
    finish(faults).map_err(|error| raise(py, &error))?;
    let table = table(points, standardise)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let work = move || {
        let mut go_on = |_| match stopped.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Stopped, "stopped")),
            false => Ok(()),
        };
        let found = search.run(table.points()?, &request, &mut go_on)?;
        Ok((found, table))
    };
    let (found, table) = compute(py, &stop, move || threads_of(thread_count)?.install(work))?;
    found_tuple(py, &found, &table)
}

fn found_tuple<'py>(py: Python<'py>, found: &Found, table: &PointTable) -> PyResult<Bound<'py, PyTuple>> {
    let clustering = &found.clustering;
    let centres: Vec<Vec<f64>> = (0..clustering.clusters()).map(|it| table.in_units(clustering.centre(it))).collect();
    let centres = PyArray2::from_vec2(py, &centres)?;
    let sureness = found.sureness.as_ref().map(|sureness| (sureness.word, sureness.reason.as_str()));
    let certificate =
        found.certificate.map(|Certificate { primal, dual, gap, undecided }| (primal, dual, gap, undecided));
    let path = found.path.as_ref().map(|path| path_tuple(py, path)).transpose()?;
    let silhouettes = PyDict::new(py);
    for (clusters, silhouette) in &found.silhouettes {
        silhouettes.set_item(clusters, silhouette)?;
    }
    // As in scikit-learn, −1 stands for no cluster.
    let labels = found.labels().into_iter().map(|label| label.map_or(-1, |label| label as i64));
    let (labels, sizes) = (PyArray1::from_iter(py, labels), numbers(py, &found.sizes()));
    (labels, centres, sizes, found.lambda, certificate, path, silhouettes, sureness, PyTuple::new(py, &found.notes)?)
        .into_pyobject(py)
}

fn path_tuple<'py>(py: Python<'py>, path: &Path) -> PyResult<Bound<'py, PyTuple>> {
    let steps = || path.steps.iter();
    let length = path.steps.len();
    let points = path.steps.first().map_or(0, |step| step.labels.len());
    let labels: Vec<usize> = steps().flat_map(|step| step.labels.iter().copied()).collect();
    let plane: Vec<f64> = steps().flat_map(|step| step.plane.as_flattened().iter().copied()).collect();
    let clusters: Vec<usize> = steps().map(|step| step.clusters).collect();
    (
        PyArray1::from_iter(py, steps().map(|step| step.lambda)),
        numbers(py, &clusters),
        numbers(py, &labels).reshape([length, points])?,
        PyArray1::from_vec(py, plane).reshape([length, points, 2])?,
        PyArray1::from_iter(py, steps().map(|step| step.certificate.gap)),
    )
        .into_pyobject(py)
}

fn numbers<'py>(py: Python<'py>, numbers: &[usize]) -> Bound<'py, PyArray1<i64>> {
    PyArray1::from_iter(py, numbers.iter().map(|&number| number as i64))
}

/// Two clusterings of the same points. Points without a cluster form one more, as in scikit-learn.
fn pair(found: &Bound<'_, PyAny>, truth: &Bound<'_, PyAny>) -> PyResult<(Vec<usize>, Vec<usize>)> {
    let (found_labels, true_labels) = (labels(found, "found")?, labels(truth, "truth")?);
    if found_labels.len() == true_labels.len() {
        let names = |labels: Vec<i64>| labels.into_iter().map(|label| label as usize).collect();
        return Ok((names(found_labels), names(true_labels)));
    }
    let lengths = format!("truth: got {} labels, want {}, as many as found has", true_labels.len(), found_labels.len());
    Err(raise(found.py(), &Error::new(ErrorKind::Shape, lengths)))
}

/// The adjusted Rand index.
#[pyfunction]
pub fn ari(found: &Bound<'_, PyAny>, truth: &Bound<'_, PyAny>) -> PyResult<f64> {
    pair(found, truth).map(|(found, truth)| quality::adjusted_rand_index(&found, &truth))
}

/// The share of points outside the best matching.
#[pyfunction]
pub fn misclustering(found: &Bound<'_, PyAny>, truth: &Bound<'_, PyAny>) -> PyResult<f64> {
    pair(found, truth).map(|(found, truth)| quality::misclustering(&found, &truth))
}

/// The best matching: pairs of a found and a true cluster.
#[pyfunction]
pub fn matching(found: &Bound<'_, PyAny>, truth: &Bound<'_, PyAny>) -> PyResult<Vec<(i64, i64)>> {
    let (found, truth) = pair(found, truth)?;
    let pairs = quality::match_clusters(&found, &truth).pairs;
    Ok(pairs.into_iter().map(|(found, truth)| (found as i64, truth as i64)).collect())
}

/// A measure of points and their labels. Points in no cluster are left out.
fn measure<Output: Send + 'static>(
    points: &Bound<'_, PyAny>,
    given: &Bound<'_, PyAny>,
    measure: impl FnOnce(Points, &Clustering) -> Output + Send + 'static,
) -> PyResult<Output> {
    let py = points.py();
    let (table, labels) = (table(points, false)?, labels(given, "labels")?);
    let count = table.points().map_err(|error| raise(py, &error))?.count();
    if labels.len() != count {
        let lengths = format!("labels: got {}, want {count}, one for every point", labels.len());
        return Err(raise(py, &Error::new(ErrorKind::Shape, lengths)));
    }
    compute(py, &AtomicBool::new(false), move || {
        let points = table.points()?;
        let kept: Vec<usize> = (0..count).filter(|point| labels[*point] >= 0).collect();
        let values: Vec<f64> = kept.iter().flat_map(|point| points.row(*point)).copied().collect();
        let points = Points::new(&values, points.dimension())?;
        let names: Vec<usize> = kept.iter().map(|point| labels[*point] as usize).collect();
        Ok(measure(points, &Clustering::of(points, &names)))
    })
}

/// The mean silhouette; absent for one cluster.
#[pyfunction]
#[pyo3(signature = (points, labels, seed = 0))]
pub fn silhouette(points: &Bound<'_, PyAny>, labels: &Bound<'_, PyAny>, seed: u64) -> PyResult<Option<f64>> {
    measure(points, labels, move |points, clustering| {
        quality::silhouette(points, clustering, &Key::new(seed).word("cluster"))
    })
}

/// The least distance of two centres over the largest distance of a point to its centre, and the values from which
/// k-means and convex clustering provably find such clusters; absent for one cluster.
#[pyfunction]
pub fn separability(points: &Bound<'_, PyAny>, labels: &Bound<'_, PyAny>) -> PyResult<Option<(f64, f64, f64)>> {
    measure(points, labels, |points, clustering| {
        let found = quality::separability(points, clustering)?;
        Some((found, quality::separability_for_kmeans(clustering), quality::separability_for_convex(clustering)))
    })
}

/// The interval of λ in which convex clustering with uniform weights provably finds these clusters.
#[pyfunction]
pub fn recovery_interval(points: &Bound<'_, PyAny>, labels: &Bound<'_, PyAny>) -> PyResult<(f64, f64)> {
    measure(points, labels, |points, clustering| {
        let interval = quality::recovery_interval(points, clustering);
        (interval.lower, interval.upper)
    })
}

/// The separation of the centres relative to the spectral norm of the residuals; absent for one cluster.
#[pyfunction]
pub fn centre_separation(points: &Bound<'_, PyAny>, labels: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    measure(points, labels, quality::centre_separation)
}

/// The largest constant of the proximity condition that all points satisfy, and the share of points that satisfy it for
/// the constant asked for; absent for one cluster.
#[pyfunction]
pub fn proximity(points: &Bound<'_, PyAny>, labels: &Bound<'_, PyAny>, constant: f64) -> PyResult<Option<(f64, f64)>> {
    measure(points, labels, move |points, clustering| {
        quality::proximity(points, clustering, constant).map(|found| (found.largest, found.share))
    })
}
