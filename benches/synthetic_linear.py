"""IFCA with gradient averaging on linear regression in vectorised numpy.

Called by `cargo bench --bench synthetic_linear` with one JSON argument. Reads rows, targets and start from files, times
all iterations, writes the models of the first start, and prints the times as JSON.
"""

import json
import sys
import time

import numpy


def flat(x, y, clients, start, steps, iterations):
    """All clients' rows in one matrix, all models of all starts in another: two products an iteration.

    `x` is rows × d, `start` is starts × k × d, `steps` has one step for every start.
    """
    rows = len(y) // clients
    starts, k, d = start.shape
    models = start.reshape(starts * k, d).copy()
    factor = numpy.repeat(2 * steps / (clients * rows), k)[:, None].astype(x.dtype)
    for _ in range(iterations):
        residuals = x @ models.T - y[:, None]
        by_client = residuals.reshape(clients, rows, starts, k)
        losses = numpy.einsum("mnsk,mnsk->msk", by_client, by_client)
        choices = losses.argmin(axis=2)
        by_client *= (choices[:, :, None] == numpy.arange(k))[:, None]
        models -= factor * (residuals.T @ x)
    return models.reshape(starts, k, d)


def by_client(x, y, clients, start, steps, iterations):
    """A gradient for every client, then their sums: the method as it is written down. One start only."""
    x = x.reshape(clients, -1, x.shape[1])
    y = y.reshape(clients, -1)
    rows = y.shape[1]
    models = start[0].copy()
    factor = x.dtype.type(steps[0] / clients)
    for _ in range(iterations):
        residuals = x @ models.T - y[:, :, None]
        choices = (residuals**2).mean(axis=1).argmin(axis=1)
        chosen = residuals[numpy.arange(clients), :, choices]
        gradients = numpy.matmul(chosen[:, None, :], x)[:, 0] * x.dtype.type(2 / rows)
        for j in range(len(models)):
            models[j] -= factor * gradients[choices == j].sum(axis=0)
    return models[None]


def main():
    task = json.loads(sys.argv[1])
    folder, clients, dimension = task["folder"], task["clients"], task["dimension"]
    x = numpy.fromfile(f"{folder}/features", dtype="<f4").reshape(-1, dimension).astype(task["precision"])
    y = numpy.fromfile(f"{folder}/targets", dtype="<f4").astype(task["precision"])
    start = numpy.fromfile(f"{folder}/start", dtype="<f4").reshape(1, -1, dimension).astype(task["precision"])
    start = numpy.tile(start, (len(task["steps"]), 1, 1))
    steps = numpy.array(task["steps"])
    run = {"flat": flat, "by_client": by_client}[task["form"]]
    run(x, y, clients, start, steps, 5)
    seconds = []
    with numpy.errstate(all="ignore"):
        for _ in range(task["repetitions"]):
            began = time.perf_counter()
            models = run(x, y, clients, start, steps, task["iterations"])
            seconds.append(time.perf_counter() - began)
    models[0].astype("<f4").tofile(f"{folder}/answer")
    print(json.dumps({"seconds": seconds, "version": numpy.__version__}))


main()
