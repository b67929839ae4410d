"""k-means of scikit-learn from given centres.

Called by `cargo bench --bench kmeans` with one JSON argument. Reads points and start from files, times every fit, writes
the labels, and prints the times as JSON.
"""

import json
import sys
import time
import warnings

import numpy
import sklearn
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning


def main():
    task = json.loads(sys.argv[1])
    folder, dimension = task["folder"], task["dimension"]
    points = numpy.fromfile(f"{folder}/points", dtype="<f8").reshape(-1, dimension)
    start = numpy.fromfile(f"{folder}/start", dtype="<f8").reshape(-1, dimension)
    warnings.simplefilter("ignore", ConvergenceWarning)

    def fit(iterations):
        settings = {"init": start, "n_init": 1, "max_iter": iterations, "tol": 0, "algorithm": task["algorithm"]}
        began = time.perf_counter()
        fitted = KMeans(len(start), **settings).fit(points)
        return time.perf_counter() - began, fitted

    fit(2)
    runs = [fit(task["iterations"]) for _ in range(task["repetitions"])]
    fitted = runs[-1][1]
    fitted.labels_.astype("<u4").tofile(f"{folder}/labels")
    answer = {"seconds": [seconds for seconds, _ in runs], "iterations": int(fitted.n_iter_)}
    print(json.dumps(answer | {"inertia": float(fitted.inertia_), "version": sklearn.__version__}))


main()
