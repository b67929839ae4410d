"""FedGrEM in numpy, and EM of scikit-learn, on rows that the benchmark wrote.

Called by `cargo bench --bench mixtures` with one JSON argument; prints the times as JSON.
"""

import json
import sys
import time
import warnings

import numpy
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture


def read(task):
    counts = numpy.fromfile(f"{task['folder']}/counts", dtype="<f4").astype(int)
    rows = numpy.fromfile(f"{task['folder']}/rows", dtype="<f4").astype(float).reshape(-1, task["columns"])
    return numpy.split(rows, numpy.cumsum(counts)[:-1])


def central(points, counts, penalty, converged, centre):
    """Points of one component: moved towards their common centre."""
    shares = counts / counts.sum()
    if centre is None or not converged:
        centre = shares @ points
    for _ in range(1000 if converged else 1):
        away = points - centre
        length = numpy.maximum(numpy.linalg.norm(away, axis=1), 1e-300)
        beyond = numpy.maximum(1 - penalty / numpy.sqrt(counts) / length, 0)[:, None] * away
        following = shares @ (points - beyond)
        moved = numpy.abs(following - centre).max()
        centre = following
        if moved < 1e-10:
            break
    away = points - centre
    length = numpy.maximum(numpy.linalg.norm(away, axis=1), 1e-300)
    return centre + numpy.maximum(1 - penalty / numpy.sqrt(counts) / length, 0)[:, None] * away, centre


def fedgrem(task):
    writers = [(rows - rows.mean(0)) / 25 for rows in read(task)]
    counts = numpy.array([len(rows) for rows in writers], dtype=float)
    components, columns = task["components"], task["columns"]
    random = numpy.random.default_rng(0)
    first = random.choice(len(writers[0]), components, replace=False)
    centres = numpy.stack([writers[0][first]] * len(writers)) + random.normal(0, 0.01, (len(writers), components, columns))
    weights = numpy.full((len(writers), components), 1 / components)
    start = weights.copy()
    penalty, common = 1.0, [None] * components
    for _ in range(task["rounds"]):
        for k, rows in enumerate(writers):
            logits = rows @ centres[k].T - 0.5 * (centres[k] ** 2).sum(1) + numpy.log(weights[k])
            logits -= logits.max(1, keepdims=True)
            shares = numpy.exp(logits)
            shares /= shares.sum(1, keepdims=True)
            weights[k] = numpy.maximum(shares.mean(0), 1e-8)
            step = numpy.minimum(0.95 / start[k], 1 / weights[k])
            pulls = (shares.T @ rows - shares.sum(0)[:, None] * centres[k]) / len(rows)
            centres[k] += step[:, None] * pulls
        penalty = 0.1 * penalty + 2 * numpy.sqrt(columns + numpy.log(len(writers)))
        for r in range(components):
            moved, common[r] = central(centres[:, r], counts, penalty, task["central"] == "converged", common[r])
            centres[:, r] = moved


def em(task):
    starts = numpy.fromfile(f"{task['folder']}/starts", dtype="<f8")
    components, columns = task["components"], task["columns"]
    writers = read(task)
    starts = starts.reshape(len(writers), -1)
    total = 0.0
    for rows, start in zip(writers, starts):
        centres = start[: components * columns].reshape(components, columns)
        covariance = start[components * columns : components * columns + columns**2].reshape(columns, columns)
        mixture = GaussianMixture(
            components,
            covariance_type="tied",
            tol=0,
            max_iter=task["iterations"],
            means_init=centres,
            weights_init=start[-components:],
            precisions_init=numpy.linalg.inv(covariance),
            reg_covar=0,
        ).fit(rows)
        total += mixture.lower_bound_ * len(rows)
    return total


def main():
    task = json.loads(sys.argv[1])
    warnings.simplefilter("ignore", ConvergenceWarning)
    work = fedgrem if task["what"] == "fedgrem" else em
    seconds, found = [], None
    for _ in range(task["repetitions"]):
        began = time.perf_counter()
        found = work(task)
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"seconds": seconds, "likelihood": found, "version": sklearn.__version__}))


main()
