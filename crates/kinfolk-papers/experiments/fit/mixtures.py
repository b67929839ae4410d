"""`kinfolk fit` without a target on planted mixtures, beside scikit-learn's GaussianMixture of all rows with the number of components by BIC.

    python experiments/fit/mixtures.py KINFOLK [SEEDS] [STUDY ...]

Studies: `alike` (one set of weights), `families` (three sets of weights), `continuum` (weights from a Dirichlet distribution), `outliers`
(two clients whose components lie elsewhere), `together` (two clients whose components lie elsewhere in the same place). Of every client a third of the rows is held out.
"""

import csv
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

STUDIES = ["alike", "families", "continuum", "outliers", "together"]
APART = 4.0


def planted(study: str, seed: int):
    """Rows, their clients and components, and of every client its family and whether it is an outlier."""
    draw = np.random.default_rng([seed, STUDIES.index(study)])
    components, clients, columns = int(draw.integers(3, 6)), int(draw.integers(30, 61)), int(draw.integers(2, 5))
    while True:
        centres = draw.normal(size=(components, columns)) * APART
        distances = np.linalg.norm(centres[:, None] - centres[None], axis=2) + 1e9 * np.eye(components)
        if distances.min() >= APART:
            break
    covariances = []
    for _ in range(components):
        root = 0.4 * draw.normal(size=(columns, columns)) + np.eye(columns)
        covariance = root @ root.T
        covariances.append(covariance * columns / np.trace(covariance))
    weights = np.tile(draw.dirichlet(np.full(components, 5.0)), (clients, 1))
    family = np.zeros(clients, int)
    if study == "families":
        family = np.arange(clients) % 3
        kinds = np.full((3, components), 0.15) + np.eye(3, components)
        weights = (kinds / kinds.sum(axis=1, keepdims=True))[family]
    if study == "continuum":
        weights = draw.dirichlet(6.0 * weights[0], size=clients)
    outlier = np.arange(clients) < (2 if study in ("outliers", "together") else 0)
    shared = draw.normal(size=columns) if study == "together" else None
    rows, owners, labels = [], [], []
    for client in range(clients):
        moved = draw.normal(size=columns) if shared is None else shared.copy()
        moved *= outlier[client] * 1.5 * APART / np.linalg.norm(moved)
        for label in draw.choice(components, size=int(draw.integers(60, 181)), p=weights[client]):
            rows.append(draw.multivariate_normal(centres[label] + moved, covariances[label]))
            owners.append(client)
            labels.append(label)
    return np.array(rows), np.array(owners), np.array(labels), family, outlier, components


def write(path: Path, rows, owners) -> None:
    with path.open("w") as file:
        print("shop", *(f"x{column}" for column in range(rows.shape[1])), sep=",", file=file)
        for owner, row in zip(owners, rows, strict=True):
            print(f"c{owner:02}", *(repr(float(value)) for value in row), sep=",", file=file)


def read(text: str):
    return list(csv.DictReader(io.StringIO(text)))


def one(kinfolk: str, study: str, seed: int) -> dict[str, float]:
    rows, owners, labels, family, outlier, components = planted(study, seed)
    held_out = np.random.default_rng(seed).random(len(rows)) < 1 / 3
    with tempfile.TemporaryDirectory() as folder:
        train, test, model = Path(folder, "train.csv"), Path(folder, "test.csv"), Path(folder, "model")
        write(train, rows[~held_out], owners[~held_out])
        write(test, rows[held_out], owners[held_out])
        fit = [kinfolk, "fit", train, "--client", "shop", "--out", model, "--seed", str(seed), "--json"]
        shown = json.loads(subprocess.run(fit, check=True, capture_output=True, text=True).stdout)
        predicted = read(subprocess.run([kinfolk, "predict", model, test], check=True, capture_output=True, text=True).stdout)
        clients = {row["client"]: row for row in read((model / "clients.csv").read_text())}
    names = [f"c{client:02}" for client in range(len(family))]
    found_families = [int(clients[name]["family"]) for name in names]
    found_outliers = np.array([clients[name]["outlier"] == "yes" for name in names])
    usual = ~outlier[owners[held_out]]
    density = np.array([float(row["log_density"]) for row in predicted])
    kinds = np.array([int(row["component"]) for row in predicted])
    pooled = [GaussianMixture(count, n_init=3, random_state=seed).fit(rows[~held_out]) for count in range(1, 9)]
    best = min(pooled, key=lambda model: model.bic(rows[~held_out]))
    differ, count = shown["weights_p"] is not None and shown["weights_p"] <= 0.05, len(shown["families"])
    verdict = {"alike": not differ, "families": count == 3, "continuum": differ and count == 1}.get(study, not differ)
    return {
        "components": len(shown["components"]) == components,
        "components, BIC": best.n_components == components,
        "verdict": verdict,
        "p of weights": shown["weights_p"] <= 0.05,
        "p of centres": shown["centres_p"] <= 0.05,
        "ARI of rows": adjusted_rand_score(labels[held_out][usual], kinds[usual]),
        "ARI of rows, pooled": adjusted_rand_score(labels[held_out][usual], best.predict(rows[held_out])[usual]),
        "ARI of families": adjusted_rand_score(family[~outlier], np.array(found_families)[~outlier]),
        "outliers found": float(found_outliers[outlier].mean()) if outlier.any() else float("nan"),
        "false outliers": float(found_outliers[~outlier].sum()),
        "log density": density.mean(),
        "log density, pooled": best.score(rows[held_out]),
        "rare rows": np.mean([float(row["outlier"]) for row, is_usual in zip(predicted, usual, strict=True) if is_usual]),
        "questions": shown["questions"],
    }


def main() -> None:
    kinfolk, seeds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 50
    for study in sys.argv[3:] or STUDIES:
        found = [one(kinfolk, study, seed) for seed in range(seeds)]
        print(study, seeds, "seeds")
        for name in found[0]:
            values = np.array([float(row[name]) for row in found])
            print(f"  {name}: {np.nanmean(values):.4f}" if not np.isnan(values).all() else f"  {name}: –")
        gains = np.array([row["log density"] - row["log density, pooled"] for row in found])
        print(f"  gain in log density over pooled: {gains.mean():.4f} ± {gains.std(ddof=1) / np.sqrt(len(gains)):.4f}", flush=True)


if __name__ == "__main__":
    main()
