"""Async-L2GD with one coin, in numpy over the rows of all clients at once.

Called by `cargo bench --bench personal` with one JSON argument. Reads clients from files, times whole runs, and prints
the times as JSON. Double precision; sums over a client's rows by `numpy.add.reduceat`, means over clusters by `bincount`.
"""

import json
import sys
import time

import numpy


def main():
    task = json.loads(sys.argv[1])
    read = lambda name: numpy.fromfile(f"{task['folder']}/{name}", dtype="<f4")
    rows = read("rows").astype(int)
    cluster = read("clusters").astype(int)
    x = read("features").astype(float).reshape(-1, task["dimension"])
    y = read("targets").astype(float)
    clients = len(rows)
    owner = numpy.repeat(numpy.arange(clients), rows)
    begin = numpy.concatenate([[0], numpy.cumsum(rows)[:-1]])
    sizes = numpy.bincount(cluster)
    alpha = task["lambda"] / (task["lambda"] + task["gamma"] * sizes)
    chance, step, gamma = task["chance"], task["step"], task["gamma"]
    share = 1 / rows[owner]

    def run():
        random = numpy.random.default_rng(0)
        theta = numpy.zeros((clients, task["dimension"]))
        for _ in range(task["iterations"]):
            if random.random() < chance:
                means = numpy.stack([numpy.bincount(cluster, column) for column in theta.T], 1) / sizes[:, None]
                weights = alpha * sizes
                everybody = weights @ means / weights.sum()
                own = alpha[cluster][:, None]
                pull = own * (theta - everybody) + (1 - own) * (theta - means[cluster])
                theta = theta - step / chance * gamma * pull
            else:
                odds = numpy.einsum("ij,ij->i", x, theta[owner])
                residual = (1 / (1 + numpy.exp(-odds)) - y) * share
                gradient = numpy.add.reduceat(residual[:, None] * x, begin)
                theta = theta - step / (1 - chance) * gradient
        return theta

    seconds = []
    for _ in range(task["repetitions"]):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"seconds": seconds}))


main()
