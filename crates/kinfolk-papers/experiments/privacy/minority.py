"""Lays 21 clients of rotated MNIST, in clusters of 3, 6, 6 and 6, as a folder of LEAF files; whoever is in cluster 2 is called `2-0` to `2-5`.

python minority.py KINFOLK_DATA/mnist OUT SEED
"""

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIZES = (3, 6, 6, 6)


def images(file: Path) -> NDArray[np.uint8]:
    return np.frombuffer(file.read_bytes(), np.uint8, offset=16).reshape(-1, 28, 28)


def labels(file: Path) -> NDArray[np.uint8]:
    return np.frombuffer(file.read_bytes(), np.uint8, offset=8)


def lay(data: Path, out: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    members = [(cluster, member) for cluster, size in enumerate(SIZES) for member in range(size)]
    for name, folder in (("train", "train"), ("t10k", "test")):
        pixels, classes = images(data / f"{name}-images-idx3-ubyte"), labels(data / f"{name}-labels-idx1-ubyte")
        rows = {}
        for (cluster, member), own in zip(members, np.array_split(draw.permutation(len(classes)), len(members))):
            turned = np.rot90(pixels[own], cluster, axes=(1, 2)).reshape(len(own), -1)
            rows[f"{cluster}-{member}"] = {"x": np.round(turned / 255, 3).tolist(), "y": classes[own].tolist()}
        users = {"users": list(rows), "num_samples": [len(own["y"]) for own in rows.values()], "user_data": rows}
        (out / folder).mkdir(parents=True, exist_ok=True)
        (out / folder / "all.json").write_text(json.dumps(users), encoding="utf-8")


if __name__ == "__main__":
    lay(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
