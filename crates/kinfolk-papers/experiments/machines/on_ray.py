"""Flower's simulation on Ray: the client app of real machines unchanged, one virtual node for every core, CLIENTS over them all.

pip install 'flwr[simulation]==1.41.0' beside the package, then: python experiments/machines/on_ray.py CLIENTS
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import tomllib

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from flwr.simulation import run_simulation  # noqa: E402

from kinfolk.flower import client_app, server_app  # noqa: E402

# That of README.md, with enough test rows for a machine to score them.
EXPERIMENT = """
name = "many"
evaluate_every = 1000
save_models = "none"
[data]
source = "linear"
clients = {clients}
samples = 20
test_samples = 10
dimension = 10
precision = "f32"
[model]
kind = "linear"
intercept = false
[[method]]
name = "ifca"
clusters = 2
rounds = 10
step = 0.1
start = "random"
"""

if __name__ == "__main__":
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        experiment = tomllib.loads(EXPERIMENT.format(clients=int(sys.argv[1])))
        began = time.monotonic()
        run_simulation(
            server_app(experiment, out=f"{folder}/run", machines=cores),
            client_app(),
            num_supernodes=cores,
            backend_config={"init_args": {"num_cpus": cores}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        )
        print(f"{sys.argv[1]} clients, {cores} virtual nodes: {time.monotonic() - began:.1f} s in all, load {os.getloadavg()[0]:.1f}")
