"""A machine's own file: what it decides is not for the server to change, and what goes wrong stays in its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kinfolk
from kinfolk import _kinfolk

EXPERIMENT: dict[str, Any] = {
    "name": "shops",
    "data": {"source": "table", "client": "shop", "target": "spent"},
    "model": {"kind": "linear"},
    "method": [{"name": "odcl", "clustering": "kmeans++", "clusters": 2}],
}


def machine(folder: Path, name: str, shops: range, *, odd: str = "1.5", more: str = "") -> Path:
    """A table of these shops and the file that stands beside it."""
    draw = np.random.default_rng(shops.start)
    lines = ["shop,owner,age,spent"]
    for shop in shops:
        for row in range(60):
            age = draw.normal()
            cell = odd if (shop, row) == (shops.start, 3) else f"{age:.4f}"
            lines.append(f"shop-{shop},Ada-{row},{cell},{(3 if shop % 2 else -3) * age:.4f}")
    (folder / f"{name}.csv").write_text("\n".join(lines))
    file = folder / f"{name}.toml"
    columns = 'client = "shop"\ncolumns = ["age", "spent"]\n'
    file.write_text(f'[node]\nname = "{name}"\ntable = "{name}.csv"\n{columns}{more}\n')
    return file


class Machines:
    """Machines in this process."""

    def __init__(self, **files: Path) -> None:
        self.sites = [_kinfolk.Site(node=file) for file in files.values()]
        self.states = [b""] * len(self.sites)
        self.log: list[str] = []

    def machines(self) -> list[int]:
        return list(range(len(self.sites)))

    def __call__(self, messages: list[tuple[int, bytes]], kind: str) -> list[tuple[int, bytes | None, str | None]]:
        answers: list[tuple[int, bytes | None, str | None]] = []
        for number, message in messages:
            try:
                reply, self.states[number], log = self.sites[number].answer(message, self.states[number])
            except kinfolk.Error as error:
                self.log.append(str(error))
                answers.append((number, None, error.told))
            else:
                self.log += log
                answers.append((number, reply, None))
        return answers

    def run(self, experiment: dict[str, Any], **options: Any) -> kinfolk.Run:
        return kinfolk.Run(
            _kinfolk.run_remote(experiment, options, self.machines, self, out="there", start=None, progress=None)
        )


def two(folder: Path, **options: Any) -> Machines:
    return Machines(north=machine(folder, "north", range(0, 4), **options), south=machine(folder, "south", range(4, 8)))


def test_a_run_on_tables_that_their_machines_allow(folder: Path) -> None:
    run = two(folder).run(EXPERIMENT)
    clusters = dict(zip(run.clients["client"], run.clients["cluster"], strict=True))
    assert len({(int(shop.removeprefix("shop-")) % 2, cluster) for shop, cluster in clusters.items()}) == 2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"client": "owner"}, "north: data.client: got `owner`, this machine's clients are named by `shop`"),
        ({"target": "owner"}, "north: data.target: got `owner`, this machine lets be read age, spent"),
        ({"test_fraction": 0.5}, "north: data.test_fraction: got 0.5, this machine keeps 0.2 of its rows"),
        ({"task": "classification"}, "north: column `spent`: its cells would leave as names of classes"),
    ],
)
def test_an_experiment_that_wants_more_is_refused(folder: Path, data: dict[str, Any], said: str) -> None:
    experiment = EXPERIMENT | {"data": EXPERIMENT["data"] | data}
    with pytest.raises(kinfolk.Error) as caught:
        Machines(north=machine(folder, "north", range(0, 4))).run(experiment)
    assert said.removeprefix("north: ") in str(caught.value)


def test_a_fit_leaves_own_models_on_their_machines(folder: Path) -> None:
    for name, shops in (("north", range(0, 4)), ("south", range(4, 8))):
        (folder / name).mkdir()
        machine(folder / name, name, shops)
    machines = Machines(north=folder / "north/north.toml", south=folder / "south/south.toml")
    file = {"name": "shops", "fit": {"client": "shop", "target": "spent", "families": 2, "quick": True}}
    lines: list[str] = []
    there = _kinfolk.fit_remote(file, machines.machines, machines, out="there", told=lines.extend)
    served = kinfolk.load(there)
    assert any("age" in line for line in lines)
    assert set(served.coef_["model"]) == {"global", "family"}
    assert list(served.clients_["client"]) == [f"shop-{shop}" for shop in range(8)]
    # The odd shops are alike, and so are the others.
    families = served.clients_["family"].tolist()
    assert families[0::2] == [families[0]] * 4 and families[1::2] == [3 - families[0]] * 4
    for name, shops in (("north", range(0, 4)), ("south", range(4, 8))):
        own = kinfolk.load(folder / name / "kinfolk-models/shops/fit/0")
        assert list(own.clients_["client"]) == [f"shop-{shop}" for shop in shops]
        assert own.score(pd.read_csv(folder / name / f"{name}.csv")) > 0.99
    with pytest.raises(kinfolk.Error, match="fit.target: missing"):
        _kinfolk.fit_remote({"fit": {"client": "shop"}}, machines.machines, machines, out="nowhere", told=print)


def left_out(run: kinfolk.Run) -> str:
    """What the server says of the machine that it goes on without."""
    [note] = [note for note in run.summary["methods"][0]["repeats"][0]["notes"] if note.startswith("left out: ")]
    return str(note)


def test_one_odd_cell_sends_no_cells(folder: Path) -> None:
    machines = two(folder, odd="n/a?")
    said = left_out(machines.run(EXPERIMENT))
    # Among numbers it is a missing value, which this machine refuses.
    assert "the machine's own log says more" in said and "n/a?" not in said


def test_a_broken_table_is_told_by_its_kind_alone(folder: Path) -> None:
    machines = two(folder, odd="")
    said = left_out(machines.run(EXPERIMENT))
    assert "an error of kind data; the machine's own log says more" in said and "north.csv" not in said
    assert "north.csv row 5: column `age` has no value" in machines.log[0]


def test_clients_with_few_rows_are_counted_for_the_server_and_named_in_the_log(folder: Path) -> None:
    machines = two(folder)
    with open(folder / "north.csv", "a") as file:
        file.write("\nshop-99,Eve,1.0,1.0\n")
    run = machines.run(EXPERIMENT)
    assert "shop-99" not in set(run.clients["client"])
    assert "north: 1 more clients have too few rows to take part" in run.summary["methods"][0]["repeats"][0]["notes"]
    assert any("shop-99 (1)" in line for line in machines.log)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[node]\ntable = "a.csv"', "node.client: missing"),
        ('[node]\ntable = "a.csv"\nclient = "shop"', "node.columns: missing"),
        ('[node]\npartition = [0, 3]\nminimum_rows = 0', "node.minimum_rows: got 0"),
        ("", "node: missing"),
    ],
)
def test_a_file_that_does_not_say_enough_is_refused(folder: Path, text: str, said: str) -> None:
    (folder / "node.toml").write_text(text)
    with pytest.raises(kinfolk.Error, match="node.toml: ") as caught:
        _kinfolk.Site(node=folder / "node.toml")
    assert said in str(caught.value)
    assert caught.value.kind == "settings"


class Talkative:
    rows = 40

    def loss(self, parameters: np.ndarray) -> float:
        return 1.0

    def train(self, parameters: np.ndarray, plan: kinfolk.Plan) -> np.ndarray:
        raise LookupError("no such pupil: Ada Lovelace")


def test_what_an_exception_says_stays_on_its_machine(folder: Path) -> None:
    machines = Machines()
    machines.sites, machines.states = [_kinfolk.Site(clients={"a": Talkative(), "b": Talkative()})], [b""]
    experiment = {
        "name": "own",
        "data": {"source": "own"},
        "model": {"kind": "own", "parameters": 2},
        "method": [{"name": "fedavg", "rounds": 2, "step": 0.1}],
    }
    said = ""
    try:
        run = kinfolk.Run(
            _kinfolk.run_remote(
                experiment, {}, machines.machines, machines, out="there", start=np.zeros(2), progress=None
            )
        )
        said = str(run.summary)
    except kinfolk.Error as error:
        said = str(error)
    assert "Lovelace" not in said and "LookupError" not in said
    assert any("LookupError: no such pupil: Ada Lovelace" in line for line in machines.log)
