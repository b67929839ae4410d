"""Ten numbers for every image of MNIST or Fashion-MNIST, by UMAP, as a table for `kinfolk run`.

    python embed.py mnist ~/.cache/kinfolk mnist-embedded.csv

Each of the 70 000 images is one row: e0 ... e9, its class, and one of 100 clients, drawn once. The embedding sees the
pixels alone; every method sees the same embedding. With a fixed seed UMAP runs on one thread and repeats itself on one
machine and one set of versions (umap-learn 0.5, numpy 2).
"""
import gzip
import sys
from pathlib import Path

import numpy as np
import umap


def read(folder: Path, name: str) -> np.ndarray:
    plain, packed = folder / name, folder / f"{name}.gz"
    raw = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
    shape = [int.from_bytes(raw[4 * i : 4 * i + 4], "big") for i in range(1, raw[3] + 1)]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def main(dataset: str, cache: str, target: str) -> None:
    folder = Path(cache).expanduser() / dataset
    images = np.concatenate([read(folder, f"{part}-images-idx3-ubyte") for part in ("train", "t10k")])
    classes = np.concatenate([read(folder, f"{part}-labels-idx1-ubyte") for part in ("train", "t10k")])
    pixels = images.reshape(len(images), -1).astype(np.float32) / 255
    reducer = umap.UMAP(n_components=10, n_neighbors=15, min_dist=0.0, random_state=0, verbose=True)
    points = reducer.fit_transform(pixels)
    clients = np.random.default_rng(0).permutation(len(points)) % 100
    with open(target, "w") as out:
        out.write(",".join(f"e{i}" for i in range(10)) + ",class,client\n")
        for point, label, client in zip(points, classes, clients):
            out.write(",".join(f"{value:.5f}" for value in point) + f",{label},{client}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
