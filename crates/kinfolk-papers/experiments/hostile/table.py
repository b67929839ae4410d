"""Methods, attacks and rules on rotated digits: what is left of honest clients' accuracy, and who is noticed.

    export KINFOLK=$PWD/target/release/kinfolk
    python crates/kinfolk-papers/experiments/hostile/table.py run results.jsonl --seeds 5
    python crates/kinfolk-papers/experiments/hostile/table.py show results.jsonl
    python crates/kinfolk-papers/experiments/hostile/table.py alarms --seeds 20

Every run is a line of the results, and those that are there are not run again. "none" are attackers that do no harm (noise of 1e-9
of their update): the same clients count as honest then, so that differences are those of the attack.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

PROGRAM = os.environ.get("KINFOLK", "kinfolk")
EXPERIMENT = Path(__file__).with_name("digits.toml")
HARMLESS = {"attack": "noise", "strength": 1e-9}
ATTACKS = ["sign-flip", "noise", "label-flip", "backdoor", "alie", "inner-product", "min-max", "min-sum", "mimic", "wrong-slot", "sybils"]
RULES = ["median", "trimmed-mean", "krum", "multi-krum", "geometric-median", "centred-clipping", "norm-clipping"]
SETTINGS: dict[str, dict[str, Any]] = {
    "mean": {},
    **{rule: {"aggregate": rule} for rule in RULES},
    **{f"nearest, {rule}": {"aggregate": rule, "mix_first": "nearest"} for rule in RULES},
}
PRESETS = ["quickstart", "families", "mixtures", "personal"]
ACCUSES = ["point away from", "sent the same update", "times as long as is usual", "far from all others", "left out", "unusable"]

Found = dict[str, dict[str, Any]]


def written(section: dict[str, Any]) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in section.items() if not isinstance(value, dict | list)]


def experiment(methods: list[str], rules: list[str], faults: dict[str, Any]) -> str:
    """The experiment with these methods, once for every rule, under these faults."""
    base = tomllib.loads(EXPERIMENT.read_text())
    lines = written(base)
    for name in ("data", "model"):
        lines += [f"[{name}]", *written(base[name])]
    lines += ["[faults]", *written({**base["faults"], **faults})]
    for method in base["method"]:
        label = method.get("label", method["name"])
        for rule in rules if label in methods else []:
            # SR-FCA's own average is a trimmed one.
            plain = {"trim": 0.0} if method["name"] == "sr-fca" and rule == "mean" else {}
            own = {**method, **plain, **SETTINGS[rule], "label": f"{label}.{list(SETTINGS).index(rule)}"}
            lines += ["[[method]]", *written(own)]
    return "\n".join(lines) + "\n"


def carry_out(arguments: list[str]) -> dict[str, Any]:
    """The summary of a run. A method that diverges is an outcome, and makes the program end with 1."""
    with tempfile.TemporaryDirectory() as folder:
        line = [PROGRAM, "run", *arguments, "--threads", "1", "--out", str(Path(folder) / "run"), "--json"]
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def accused(repeat: dict[str, Any]) -> bool:
    return any(word in note for note in repeat["notes"] for word in ACCUSES)


def measure(seed: int, methods: list[str], rules: list[str], faults: dict[str, Any]) -> Found:
    """What became of every method with every rule."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.toml"
        file.write_text(experiment(methods, rules, faults))
        summary = carry_out([str(file), "--seed", str(seed)])
    found = {}
    for method in summary["methods"]:
        repeat = method["repeats"][0]
        name, rule = method["label"].rsplit(".", 1)
        numbers = {key: value for key, value in repeat.items() if key.startswith(("honest_", "phantom_", "attackers_", "backdoor_"))}
        found[f"{name}: {list(SETTINGS)[int(rule)]}"] = {"status": repeat["status"], "accused": accused(repeat), **numbers}
    return found


def key(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["attack"], line["start"], line["cluster"], line["seed"]


def read(path: Path) -> dict[tuple[Any, ...], Found]:
    """Everything that was found, by attack, what is attacked, the attackers' cluster (none: spread evenly) and seed."""
    runs: dict[tuple[Any, ...], Found] = {}
    for text in path.read_text().splitlines() if path.exists() else []:
        line = json.loads(text)
        runs.setdefault(key(line), {}).update(line["found"])
    return runs


def run(options: argparse.Namespace) -> None:
    there, methods, rules = read(options.results), options.methods.split(","), options.rules.split(";")
    for seed in range(options.first, options.first + options.seeds):
        clusters = {"both": [None, seed % 4], "even": [None], "every": [0, 1, 2, 3]}[options.spread]
        for cluster in clusters:
            for attack in ["none", *ATTACKS]:
                about = {"attack": attack, "start": options.start, "cluster": cluster, "seed": seed}
                if {f"{method}: {rule}" for method in methods for rule in rules} <= there.get(key(about), {}).keys():
                    continue
                spread = {"attackers": 0.2} if cluster is None else {"attackers": 0.3, "attackers_in": cluster}
                what = HARMLESS if attack == "none" else {"attack": attack}
                found = measure(seed, methods, rules, {**spread, **what, "attack_from": options.start})
                with options.results.open("a") as results:
                    results.write(json.dumps({**about, "found": found}) + "\n")


class Results:
    def __init__(self, path: Path, start: str, even: bool) -> None:
        self.runs = [(of, found) for of, found in read(path).items() if of[1] == start and (of[2] is None) == even]

    def labels(self) -> list[str]:
        return list(dict.fromkeys(label for _, found in self.runs for label in found))

    def values(self, attack: str | None, label: str, name: str) -> Iterator[float]:
        """A number of all runs under this attack, or under any. A method that failed serves nobody."""
        for (of, *_), found in self.runs:
            if (of == attack or attack is None and of != "none") and label in found:
                one = found[label]
                if name in one or one["status"] in ("failed", "diverged"):
                    yield 100.0 * float(one.get(name, 0.0))

    def mean(self, attack: str | None, label: str, name: str = "honest_metric") -> float:
        found = list(self.values(attack, label, name))
        return mean(found) if found else float("nan")


def in_words(even: bool, start: str) -> str:
    since = "from the search for clusters on" if start == "start" else "in the rounds"
    return f"{'20 % of every cluster' if even else '30 % of one cluster'}, {since}"


def show(options: argparse.Namespace) -> None:
    for start in dict.fromkeys(start for _, start, _, _ in read(options.results)):
        for even in (True, False):
            results = Results(options.results, start, even)
            methods = list(dict.fromkeys(label.split(": ")[0] for label in results.labels()))
            if not methods:
                continue
            print(f"\n**The most that an attack costs**, {in_words(even, start)}\n")
            print(f"| rule | {' | '.join(methods)} |\n|{'---|' * (len(methods) + 1)}")
            for rule in SETTINGS:
                cells = [most_lost(results, method, rule) for method in methods if f"{method}: {rule}" in results.labels()]
                if cells:
                    print(f"| {rule} | {' | '.join(cells)} |")
            for method in methods:
                print(f"\n**{method}**, {in_words(even, start)}\n")
                show_method(results, method)


def most_lost(results: Results, method: str, rule: str) -> str:
    """Against no attack with the same rule; against no attack and the plain mean; and the attack."""
    label = f"{method}: {rule}"
    under = {attack: results.mean(attack, label) for attack in ATTACKS}
    worst = min(under, key=lambda attack: under[attack])
    own, plain = results.mean("none", label), results.mean("none", f"{method}: mean")
    return f"{own - under[worst]:.1f}, {plain - under[worst]:.1f} ({worst})"


def show_method(results: Results, method: str) -> None:
    heads = [*ATTACKS, "most in a cluster", "backdoor opens"]
    print(f"| rule | none | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 2)}")
    for rule in SETTINGS:
        label = f"{method}: {rule}"
        if label not in results.labels():
            continue
        worst = "honest_worst_cluster"
        lost = {attack: results.mean("none", label, worst) - results.mean(attack, label, worst) for attack in ATTACKS}
        attack = max(lost, key=lambda attack: lost[attack])
        cells = [f"{results.mean(attack, label):.1f}" for attack in ["none", *ATTACKS]]
        cells += [f"{lost[attack]:.1f} ({attack})", f"{results.mean('backdoor', label, 'backdoor_success'):.0f} %"]
        print(f"| {rule} | {' | '.join(cells)} |")


def show_noticed(options: argparse.Namespace) -> None:
    """For every attack: how many runs have a note, how many attackers and honest clients it names, and what became of clusters."""
    results = [Results(options.results, start, even) for start in ("rounds", "start") for even in (True, False)]
    heads = ["attack", "runs with a note", "attackers named", "honest clients named in a run", "captured", "phantom clusters"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for attack in ["none", *ATTACKS]:
        def share(name: str, attack: str = attack) -> float:
            return mean(value for found in results for label in found.labels() for value in found.values(attack, label, name))
        cells = [f"{share('accused'):.0f} %", f"{share('attackers_noticed'):.0f} %", f"{share('honest_suspected') / 100:.2f}"]
        cells += [f"{share('honest_captured'):.1f} %", f"{share('phantom_clusters') / 100:.2f}"]
        print(f"| {attack} | {' | '.join(cells)} |")


def alarms(options: argparse.Namespace) -> None:
    """Honest runs of the presets, with answers looked at one by one."""
    faults = [f"faults.{name}={value}" for name, value in {**HARMLESS, "attackers": 0.2}.items()]
    for preset in PRESETS:
        runs: dict[str, list[bool]] = {}
        for seed in range(options.seeds):
            changes = [word for change in faults for word in ("--set", change)]
            for method in carry_out([preset, "--seed", str(seed), "--repeat", "1", *changes])["methods"]:
                runs.setdefault(method["label"], []).append(accused(method["repeats"][0]))
        for label, found in runs.items():
            print(f"| {preset} | {label} | {sum(found)} of {len(found)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("run")
    verb.add_argument("results", type=Path)
    verb.add_argument("--seeds", type=int, default=5)
    verb.add_argument("--first", type=int, default=0, help="the first seed")
    verb.add_argument("--methods", default="ifca,ifca-spare,sr-fca,fedgroup,oracle")
    verb.add_argument("--rules", default=";".join(SETTINGS), help="between semicolons")
    verb.add_argument("--spread", default="both", choices=["both", "even", "every"], help="`both`: evenly, and in cluster seed modulo 4; `every`: in each of the four")
    verb.add_argument("--start", default="rounds", choices=["rounds", "start"], help="`start`: the search for clusters is attacked, too")
    verb.set_defaults(carry_out=run)
    for name, function in (("show", show), ("noticed", show_noticed)):
        verb = verbs.add_parser(name)
        verb.add_argument("results", type=Path)
        verb.set_defaults(carry_out=function)
    verb = verbs.add_parser("alarms")
    verb.add_argument("--seeds", type=int, default=20)
    verb.set_defaults(carry_out=alarms)
    options = parser.parse_args()
    options.carry_out(options)
