"""Methods, attacks and rules on rotated digits: what is left of honest clients' accuracy, and who is noticed.

    KINFOLK=target/release/kinfolk python crates/kinfolk-papers/experiments/hostile/table.py results.jsonl [--seeds 5] [--only-tables]

Every run is a line of the results, and those that are there are not run again. Attackers who do no harm (noise of 1e-9 of their
update) are "none": the same clients are counted as honest then, so that differences are those of the attack.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

PROGRAM = os.environ.get("KINFOLK", "kinfolk")
EXPERIMENT = Path(__file__).with_name("digits.toml")
HARMLESS = {"attack": "noise", "strength": 1e-9}
ATTACKS = ["sign-flip", "noise", "label-flip", "backdoor", "alie", "inner-product", "min-max", "min-sum", "mimic", "wrong-slot", "sybils"]
SPREADS: dict[str, dict[str, Any]] = {
    "20 % of every cluster": {"attackers": 0.2},
    **{f"30 % of cluster {place}": {"attackers": 0.3, "attackers_in": place} for place in range(4)},
}
RULES = ["median", "trimmed-mean", "krum", "multi-krum", "geometric-median", "centred-clipping", "norm-clipping"]
SETTINGS: dict[str, dict[str, Any]] = {
    "mean": {},
    **{rule: {"aggregate": rule} for rule in RULES},
    **{f"nearest, {rule}": {"aggregate": rule, "mix_first": "nearest"} for rule in RULES},
}
FIELDS = ["honest_metric", "honest_worst_cluster", "honest_captured", "phantom_clusters", "attackers_noticed", "honest_suspected", "backdoor_success"]


def toml(value: Any) -> str:
    return json.dumps(value)


def written(experiment: dict[str, Any], methods: list[str], faults: dict[str, Any]) -> str:
    """The experiment with every method once for every rule, under these faults."""
    lines = [f"{key} = {toml(value)}" for key, value in experiment.items() if not isinstance(value, dict | list)]
    for section in ("data", "model"):
        lines += [f"[{section}]", *(f"{key} = {toml(value)}" for key, value in experiment[section].items())]
    lines += ["[faults]", *(f"{key} = {toml(value)}" for key, value in {**experiment["faults"], **faults}.items())]
    for method in experiment["method"]:
        if method["name"] not in methods:
            continue
        for rule, settings in SETTINGS.items():
            # SR-FCA's own average is a trimmed one.
            own = {"trim": 0.0} if method["name"] == "sr-fca" and rule == "mean" else {}
            entry = {**method, **own, **settings, "label": f"{method['name']}.{list(SETTINGS).index(rule)}"}
            lines += ["[[method]]", *(f"{key} = {toml(value)}" for key, value in entry.items())]
    return "\n".join(lines) + "\n"


def run(text: str, seed: int) -> dict[str, dict[str, Any]]:
    """What became of every method with every rule."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.toml"
        file.write_text(text)
        line = [PROGRAM, "run", str(file), "--seed", str(seed), "--threads", "1", "--out", str(Path(folder) / "run"), "--json"]
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # A method that diverges is an outcome, and makes the program end with 1.
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    rules, found = list(SETTINGS), {}
    for method in json.loads(done.stdout)["methods"]:
        repeat = method["repeats"][0]
        name, rule = method["label"].rsplit(".", 1)
        found[f"{name}: {rules[int(rule)]}"] = {"status": repeat["status"], **{key: repeat[key] for key in FIELDS if key in repeat}}
    return found


def measure(path: Path, seeds: int, methods: list[str], start: str) -> None:
    there = {(line["spread"], line["attack"], line["seed"]) for line in read(path)}
    experiment = tomllib.loads(EXPERIMENT.read_text())
    for seed in range(seeds):
        for spread, settings in SPREADS.items():
            for attack in ["none", *ATTACKS]:
                if (spread, attack, seed) in there:
                    continue
                faults = {**settings, "attack_from": start, **(HARMLESS if attack == "none" else {"attack": attack})}
                found = run(written(experiment, methods, faults), seed)
                with path.open("a") as opened:
                    opened.write(json.dumps({"spread": spread, "attack": attack, "seed": seed, "found": found}) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Results:
    """All runs, by what they are of."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self.runs = {(line["spread"], line["attack"], line["seed"]): line["found"] for line in lines}
        self.seeds = sorted({line["seed"] for line in lines})

    def points(self, spread: str, attack: str, label: str, field: str = "honest_metric") -> list[float]:
        """One number for every seed; a method that failed serves nobody."""
        found = (self.runs.get((spread, attack, seed), {}).get(label, {}) for seed in self.seeds)
        return [100.0 * it.get(field, 0.0) for it in found if it]

    def mean(self, spreads: Iterable[str], attack: str, label: str, field: str = "honest_metric") -> float:
        return mean(value for spread in spreads for value in self.points(spread, attack, label, field))


def worst(values: dict[str, float]) -> tuple[float, str]:
    attack = min(values, key=lambda attack: values[attack])
    return values[attack], attack


def print_tables(path: Path) -> None:
    results = Results(read(path))
    labels = list(dict.fromkeys(label for found in results.runs.values() for label in found))
    methods = list(dict.fromkeys(label.split(": ")[0] for label in labels))
    one, every = [spread for spread in SPREADS if "attackers_in" in SPREADS[spread]], ["20 % of every cluster"]
    for method in methods:
        for name, spreads in (("20 % of every cluster", every), ("30 % of one cluster, the mean over which", one)):
            print(f"\n### {method}, {name}\n\n| rule | none | " + " | ".join(ATTACKS) + " | worst loss | worst against mean |")
            print("|---" * (len(ATTACKS) + 4) + "|")
            usual = results.mean(spreads, "none", f"{method}: mean")
            for rule in SETTINGS:
                label = f"{method}: {rule}"
                calm = results.mean(spreads, "none", label)
                values = {attack: results.mean(spreads, attack, label) for attack in ATTACKS}
                least, attack = worst(values)
                cells = " | ".join(f"{value:.1f}" for value in values.values())
                print(f"| {rule} | {calm:.1f} | {cells} | {calm - least:.1f} ({attack}) | {usual - least:.1f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", default="ifca,sr-fca,fedgroup,oracle,fedavg")
    parser.add_argument("--start", default="rounds", choices=["rounds", "start"], help="whether the search for clusters is attacked, too")
    parser.add_argument("--only-tables", action="store_true", help="run nothing")
    options = parser.parse_args()
    if not options.only_tables:
        measure(options.results, options.seeds, options.methods.split(","), options.start)
    print_tables(options.results)
