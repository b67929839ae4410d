"""Aggregation rules and attacks of byzfl on a few small problems, for `aggregate/robust.rs` and `federation/faults/conspiracy.rs`.

    pip install --no-deps byzfl==0.0.11 numpy scipy
    python crates/kinfolk/tests/reference/robust.py > crates/kinfolk/tests/reference/robust.json

Rules and attacks work on NumPy arrays; byzfl also imports PyTorch, for which empty modules do here.
"""

import importlib.util
import json
import sys
import types
from pathlib import Path

import numpy as np

torch = types.ModuleType("torch")
torch.Tensor = type("Tensor", (), {})
torch.linalg = types.ModuleType("torch.linalg")
sys.modules.update({"torch": torch, "torch.linalg": torch.linalg})
# The package itself imports its benchmark, and with it all of PyTorch: only its folder is made known.
place = Path(importlib.util.find_spec("byzfl").origin).parent
byzfl = types.ModuleType("byzfl")
byzfl.__path__ = [str(place)]
sys.modules["byzfl"] = byzfl

from byzfl.aggregators import aggregators, preaggregators  # noqa: E402
from byzfl.attacks import attacks  # noqa: E402


def case(seed, clients, hostile, dimension):
    rng = np.random.default_rng(seed)
    honest = rng.normal(0.4, 1.0, (clients - hostile, dimension)).round(6)
    vectors = np.vstack([honest, rng.normal(-3.0, 2.0, (hostile, dimension)).round(6)])
    mixed = preaggregators.NNM(hostile)(vectors)
    clipped = preaggregators.Clipping(2.0)(vectors.copy())
    # Bucketing draws its permutation of the rows from NumPy's global generator.
    np.random.seed(seed)
    permutation = np.random.permutation(clients)
    np.random.seed(seed)
    buckets = preaggregators.Bucketing(2)(vectors)
    assert np.allclose(buckets[0], vectors[permutation[:2]].mean(axis=0))
    return {
        "hostile": hostile,
        "vectors": vectors,
        "mean": aggregators.Average()(vectors),
        "median": aggregators.Median()(vectors),
        "trimmed_mean": aggregators.TrMean(hostile)(vectors),
        "krum": aggregators.Krum(hostile)(vectors),
        "multi_krum": aggregators.MultiKrum(hostile)(vectors),
        "geometric_median_3": aggregators.GeometricMedian(0.1, 3)(vectors),
        "geometric_median_400": aggregators.GeometricMedian(1e-6, 400)(vectors),
        "clipped_mean_2": aggregators.Average()(clipped),
        "centred_clipping_1.5_5": aggregators.CenteredClipping(None, 5, 1.5)(vectors),
        "nnm": mixed,
        "nnm_trimmed_mean": aggregators.TrMean(hostile)(mixed),
        "permutation": permutation,
        "buckets_2": buckets,
        "attacks": {
            "sign_flip": attacks.SignFlipping()(honest),
            "inner_product_2": attacks.InnerProductManipulation(2.0)(honest),
            "alie_1.5": attacks.ALittleIsEnough(1.5)(honest),
            "mimic_1": attacks.Mimic(1)(honest),
        },
    }


cases = [case(1, 9, 2, 5), case(2, 10, 3, 4), case(3, 7, 1, 12), case(4, 11, 4, 6)]
json.dump({"byzfl": "0.0.11", "cases": cases}, sys.stdout, default=np.ndarray.tolist, separators=(",", ":"))
print()
