"""What a Python client costs beside its own code: microseconds a client and ask, with clients that do nothing.

    make python && .venv/bin/python crates/kinfolk-py/benches/python_clients.py

FedAvg calls `train` once for every client and ask; IFCA with two clusters calls `loss` twice and `train` once. The time
is that of the rounds as the run measured it, less that of the same calls in a loop of Python. Every number is the best
of several runs.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import numpy as np

import kinfolk

CLIENTS, ROUNDS, RUNS = 200, 50, 5
METHODS: dict[str, tuple[dict[str, Any], int]] = {
    "fedavg": ({}, 0),
    "ifca": ({"clusters": 2}, 2),
}
"""Settings, and how often the loss is asked for."""


class Idle:
    def loss(self, parameters: Any) -> float:
        return 0.0

    def train(self, parameters: Any, plan: kinfolk.Plan) -> Any:
        return parameters, 0.0


def time_run(method: str, width: int, threads: int) -> float:
    """Seconds of all rounds."""
    settings = {"name": method, "rounds": ROUNDS, "step": 0.1, **METHODS[method][0]}
    experiment = {"evaluate_every": ROUNDS, "save_models": "none", "method": settings}
    clients = {f"client-{number}": Idle() for number in range(CLIENTS)}
    with tempfile.TemporaryDirectory() as folder:
        run = kinfolk.run(
            experiment, clients=clients, start=np.zeros(width), out=f"{folder}/run", threads=threads, progress=False
        )
    return float(run.summary["methods"][0]["repeats"][0]["seconds"])


def time_calls(method: str, width: int) -> float:
    """Seconds of the same calls in Python."""
    client, parameters, plan = Idle(), np.zeros(width), kinfolk.Plan()
    began = time.perf_counter()
    for _ in range(CLIENTS * ROUNDS):
        for _ in range(METHODS[method][1]):
            client.loss(parameters)
        client.train(parameters, plan)
    return time.perf_counter() - began


def main() -> None:
    print(f"{'method':8}{'numbers':>8}{'threads':>8}{'µs a client and ask':>22}")
    for method in METHODS:
        for width in [10, 100, 1000]:
            for threads in [1, 2]:
                own = min(time_calls(method, width) for _ in range(RUNS))
                seconds = min(time_run(method, width, threads) for _ in range(RUNS))
                print(f"{method:8}{width:8}{threads:8}{(seconds - own) / (CLIENTS * ROUNDS) * 1e6:22.1f}")


if __name__ == "__main__":
    main()
