"""Python and the command line give the same bits."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import kinfolk
from kinfolk import _kinfolk

LIVELY = """
name = "lively"
seed = 3
repeat = 2
evaluate_every = 4

[data]
source = "digits"
clients = 12
samples = 20
test_samples = 10
unseen_clients = 3
clusters = "rotate"

[model]
kind = "mlp"
hidden = [8]

[[method]]
name = "ifca"
clusters = 4
rounds = 8
step = 0.3

[[method]]
name = "fedavg"
rounds = 8
batch = 5
step = 0.3

[[method]]
name = "sr-fca"
rounds = 2
step = 0.3
"""


def command(program: str, *arguments: str) -> str:
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_seconds(inner) for key, inner in value.items() if key != "seconds"}
    return [without_seconds(inner) for inner in value] if isinstance(value, list) else value


def rounds(folder: Path) -> list[dict[str, str]]:
    with (folder / "rounds.csv").open(newline="") as file:
        return [{key: cell for key, cell in row.items() if key != "seconds"} for row in csv.DictReader(file)]


def files(folder: Path) -> dict[str, bytes]:
    timed = {"summary.json", "rounds.csv", "report.html"}
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in timed]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def assert_same(ours: Path, theirs: Path) -> None:
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (ours, theirs)]
    assert without_seconds(summaries[0]) == without_seconds(summaries[1])
    assert rounds(ours) == rounds(theirs)
    assert len(files(ours)) > 10
    assert files(ours) == files(theirs)
    assert (ours / "report.html").is_file()


def test_a_file(folder: Path, program: str) -> None:
    Path("lively.toml").write_text(LIVELY)
    command(program, "run", "lively.toml", "--out", "theirs", "--set", "method.ifca.step=0.2", "--threads", "1")
    run = kinfolk.run(Path("lively.toml"), out="ours", **{"method.ifca.step": 0.2})
    assert_same(run.folder, folder / "theirs")


def test_a_dict(folder: Path, program: str, tiny: dict[str, Any]) -> None:
    run = kinfolk.run(tiny, out="ours")
    command(program, "run", "ours/experiment.toml", "--out", "theirs")
    assert_same(run.folder, folder / "theirs")
    assert repr(kinfolk.load("theirs")).splitlines()[0] == repr(run).splitlines()[0]


def test_single_answers_give_the_bits_of_other_machines(tiny: dict[str, Any]) -> None:
    # Neither is there elsewhere: unseen clients, and models of single clients.
    tiny["data"] |= {"unseen_clients": 0, "clients": 100}
    tiny["method"] = [method for method in tiny["method"] if method["name"] != "local"]
    sites = [_kinfolk.Site(partition=(part, 3)) for part in range(3)]
    states = [b""] * len(sites)

    def exchange(messages: list[tuple[int, bytes]], kind: str) -> list[tuple[int, bytes | None, str | None]]:
        answers: list[tuple[int, bytes | None, str | None]] = []
        for machine, message in messages:
            reply, states[machine], _ = sites[machine].answer(message, states[machine])
            answers.append((machine, reply, None))
        return answers

    there = _kinfolk.run_remote(
        tiny, {}, lambda: list(range(len(sites))), exchange, out="there", start=None, progress=None
    )
    single = kinfolk.run(tiny, out="single", single_answers=True).folder
    fused = kinfolk.run(tiny, out="fused").folder
    models = [
        {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("models/**/*.safetensors")}
        for folder in (there.absolute(), single, fused)
    ]
    assert len(models[0]) > 2
    assert models[0] == models[1]
    assert models[0] != models[2], "the same in any case"


def test_clusters(program: str) -> None:
    points = np.random.default_rng(0).normal(size=(90, 4))
    points[:30] += 6
    points[30:60, 0] -= 9
    np.save("points.npy", points)
    cases = [
        (["--clusters", "3"], kinfolk.cluster.kmeans(points, 3)),
        (["--clusters", "3", "--standardise"], kinfolk.cluster.kmeans(points, 3, standardise=True)),
        (["--method", "kmeans++", "--seed", "5"], kinfolk.cluster.kmeans(points, seed=5)),
        (["--method", "spectral", "--clusters", "3"], kinfolk.cluster.spectral(points, 3)),
        (["--method", "gradient", "--clusters", "3"], kinfolk.cluster.gradient(points, 3)),
        (["--lambda", "0.05", "--path"], kinfolk.cluster.convex(points, 0.05, path=True)),
        (["--method", "convex"], kinfolk.cluster.convex(points)),
        (
            ["--method", "clusterpath", "--weights", "neighbours", "--path-values", "9"],
            kinfolk.cluster.clusterpath(points, weights="neighbours", path_values=9),
        ),
        ([], kinfolk.cluster.auto(points)),
    ]
    for arguments, ours in cases:
        theirs = json.loads(command(program, "cluster", "points.npy", "--json", *arguments))
        assert ours.labels.tolist() == [-1 if label is None else label for label in theirs["labels"]], arguments
        assert ours.centres.tolist() == theirs["centres"], arguments
        assert ours.sizes.tolist() == theirs["sizes"], arguments
        assert ours.lambda_ == theirs.get("lambda"), arguments
        assert list(ours.notes) == theirs.get("notes", []), arguments
        assert (ours.sureness and ours.sureness.word) == theirs.get("sureness"), arguments
        assert (ours.certificate and ours.certificate.gap) == theirs.get("gap"), arguments
        assert (ours.path is None) == ("path" not in theirs), arguments
        if ours.path is not None:
            steps = [{"lambda": x, "clusters": n} for x, n in zip(ours.path.lambdas, ours.path.clusters, strict=True)]
            assert steps == theirs["path"], arguments
        if "--standardise" not in arguments and "separability" in theirs:
            found = kinfolk.cluster.separability(points, ours.labels)
            assert found is not None and found.found == theirs["separability"], arguments
