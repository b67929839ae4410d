"""Aggregation rules and attacks of byzfl on a few small problems, for `aggregate/robust.rs` and `federation/faults/conspiracy.rs`.

    pip install --no-deps byzfl==0.0.11 numpy scipy
    python crates/kinfolk/tests/reference/robust.py > crates/kinfolk/tests/reference/robust.json

Rules and attacks work on NumPy arrays; byzfl also imports PyTorch, for which empty modules do here. What byzfl does not have is under
"own": a few lines of NumPy of ours, written from the papers and in another way than the library (bisection where that solves an equation).
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


def geometric_median(vectors, weights, smoothing, steps):
    """byzfl's, of members that do not weigh alike (Pillutla, Kakade, Harchaoui 2022, Algorithm 2)."""
    centre = np.zeros(vectors.shape[1])
    for _ in range(steps):
        shares = weights / np.maximum(np.linalg.norm(vectors - centre, axis=1), smoothing)
        centre = shares @ vectors / shares.sum()
    return centre


def clipped_mean(vectors, weights, centre):
    """A centre and the weighted mean of differences to it, none longer than their median length."""
    away = vectors - centre
    lengths = np.linalg.norm(away, axis=1)
    # The library's median of an even number is the upper one.
    radius = np.sort(lengths)[len(lengths) // 2]
    kept = np.minimum(1.0, radius / lengths)
    return centre + (weights * kept) @ away / weights.sum()


def farthest(honest, may):
    """The honest mean and as much of the way against it as is allowed (Shejwalkar, Houmansadr 2021), by bisection."""
    mean = honest.mean(axis=0)
    direction = -mean / np.linalg.norm(mean)
    low, high = 0.0, 1e3
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if may(mean + middle * direction) else (low, middle)
    return mean + low * direction


def squares(honest, point):
    return ((honest - point) ** 2).sum(axis=1)


def own(honest, vectors):
    weights = np.arange(1.0, len(vectors) + 1)
    pairs = np.array([squares(honest, one) for one in honest])
    return {
        "weighted_geometric_median_20": geometric_median(vectors, weights, 1e-6, 20),
        "weighted_clipped_mean": clipped_mean(vectors, weights, vectors[0] * 0.1),
        "min_max": farthest(honest, lambda point: squares(honest, point).max() <= pairs.max()),
        "min_sum": farthest(honest, lambda point: squares(honest, point).sum() <= pairs.sum(axis=1).max()),
    }


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
        "own": own(honest, vectors),
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
