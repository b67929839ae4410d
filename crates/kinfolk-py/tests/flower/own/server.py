import numpy as np

from kinfolk.flower import server_app

EXPERIMENT = {
    "name": "own",
    "data": {"source": "own"},
    "model": {"kind": "own", "parameters": 2},
    "method": [{"name": "ifca", "clusters": 2, "rounds": 2, "local_steps": 20, "step": 0.1}],
}


def start(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=2)


app = server_app(EXPERIMENT, start=start, machines=3)
