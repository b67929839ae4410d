"""`Run`: tables, models, the report, and how it shows itself."""

from __future__ import annotations

import copy
import csv
import json
import pickle
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pytest

import kinfolk


def written(run: kinfolk.Run, name: str) -> list[list[str]]:
    with (run.folder / name).open(newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("name", ["clients", "rounds"])
def test_tables_are_the_files(finished: kinfolk.Run, name: str) -> None:
    table: kinfolk.Table = getattr(finished, name)
    header, *rows = written(finished, f"{name}.csv")
    assert list(table) == table.keys() == header
    assert table.rows == len(rows)
    for column, cells in zip(header, zip(*rows, strict=True), strict=True):
        array = table[column]
        if array.dtype.kind == "U":
            assert array.tolist() == list(cells)
        else:
            assert [float(cell or "nan") for cell in cells] == pytest.approx(array.tolist(), abs=0, rel=0, nan_ok=True)


def test_types_of_columns(finished: kinfolk.Run) -> None:
    kinds = {name: array.dtype.kind for name, array in finished.clients.items()}
    assert (kinds["label"], kinds["seed"], kinds["true_cluster"], kinds["metric"]) == ("U", "i", "i", "f")
    # fedavg has no clusters.
    assert np.isnan(finished.clients["cluster"][finished.clients["label"] == "fedavg"]).all()
    assert "cluster" in finished.clients and "custer" not in finished.clients
    with pytest.raises(KeyError):
        finished.clients["custer"]


def test_arrow(finished: kinfolk.Run) -> None:
    table = pyarrow.table(finished.clients)
    assert table.column_names == list(finished.clients)
    assert [str(table.schema.field(name).type) for name in ("label", "cluster", "margin", "outlier")] == [
        "string",
        "int64",
        "double",
        "bool",
    ]
    missing = np.isnan(finished.clients["cluster"])
    assert missing.any() and table["cluster"].null_count == missing.sum()
    assert table["group"].null_count == table.num_rows
    assert pyarrow.table(finished.rounds)["sizes"].to_pylist()[-1] is None
    assert pyarrow.table(finished.rounds)["sizes"].to_pylist()[1] == str(finished.rounds["sizes"][1])


def test_polars(finished: kinfolk.Run) -> None:
    frame = polars.DataFrame(finished.clients)
    assert frame.columns == list(finished.clients)
    assert frame.schema["cluster"] == polars.Int64
    assert frame["cluster"].null_count() == np.isnan(finished.clients["cluster"]).sum()
    assert frame["metric"].to_list() == finished.clients["metric"].tolist()


def test_pandas(finished: kinfolk.Run) -> None:
    frame = pandas.DataFrame(dict(finished.clients.items()))
    assert list(frame.columns) == list(finished.clients)
    assert (frame.groupby("label")["seed"].nunique() == 2).all()
    if hasattr(pandas.DataFrame, "from_arrow"):
        assert pandas.DataFrame.from_arrow(finished.clients)["metric"].tolist() == frame["metric"].tolist()
    with pytest.raises(TypeError, match="dict"):
        pandas.DataFrame(finished.clients)


def test_models(finished: kinfolk.Run, tiny: dict[str, Any]) -> None:
    assert list(finished.models) == ["fedavg", "ifca", "local"]
    assert list(finished.models["ifca"]) == [0, 1]
    assert list(finished.models["ifca"][1]) == ["cluster-0", "cluster-1"]
    (name, weight), = finished.models["ifca"][1]["cluster-0"].items()
    assert weight.dtype == np.float64 and weight.shape == (1, 5), name
    assert len(finished.models["local"][0]) == 12
    with pytest.raises(KeyError, match="want a seed first, one of 0, 1"):
        finished.models["ifca"]["cluster-0"]
    with pytest.raises(KeyError, match="got 'ifac', want one of 'fedavg', 'ifca', 'local'"):
        finished.models["ifac"]
    once = kinfolk.run(tiny)
    assert np.array_equal(once.models["ifca"]["cluster-0"][name], once.models["ifca"][0]["cluster-0"][name])
    assert len(kinfolk.run(tiny, save_models="none").models) == 0


def test_clusters_come_in_the_order_of_their_numbers(finished: kinfolk.Run, folder: Path) -> None:
    copy = folder / "copy"
    shutil.copytree(finished.folder, copy)
    place = copy / "models" / "ifca" / "0"
    for number in (10, 9):
        shutil.copy(place / "cluster-0.safetensors", place / f"cluster-{number}.safetensors")
    names = ["cluster-0", "cluster-1", "cluster-9", "cluster-10"]
    assert list(kinfolk.load(copy).models["ifca"][0]) == names
    (place / "cluster-9.safetensors").write_bytes(b"nonsense")
    with pytest.raises(kinfolk.Error, match="not a safetensors file") as caught:
        kinfolk.load(copy).models["ifca"][0]["cluster-9"]
    assert caught.value.kind == "data"


def test_loading(finished: kinfolk.Run, folder: Path) -> None:
    again = kinfolk.load(finished.folder)
    assert again.summary == finished.summary == json.loads((finished.folder / "summary.json").read_text())
    assert repr(again) == repr(finished)
    for missing in ("nowhere", folder):
        with pytest.raises(kinfolk.Error, match="want the folder of a finished run") as caught:
            kinfolk.load(missing)
        assert caught.value.kind == "io"
    broken = folder / "broken"
    shutil.copytree(finished.folder, broken)
    (broken / "clients.csv").write_text("label,seed\na,x\n")
    with pytest.raises(kinfolk.Error, match='row 1, column seed: got "x"'):
        kinfolk.load(broken)


def same_table(one: kinfolk.Table, other: kinfolk.Table) -> bool:
    # By Arrow, which tells what is missing from NaN, and whole numbers from others.
    return list(one) == list(other) and pyarrow.table(one).equals(pyarrow.table(other))


@pytest.mark.parametrize("duplicate", [lambda it: pickle.loads(pickle.dumps(it)), copy.deepcopy], ids=["pickle", "copy"])
def test_a_run_and_its_tables_pickle(finished: kinfolk.Run, duplicate: Callable[[Any], Any]) -> None:
    finished.clients["metric"]
    again: kinfolk.Run = duplicate(finished)
    assert (again.folder, again.summary, repr(again)) == (finished.folder, finished.summary, repr(finished))
    assert same_table(again.clients, finished.clients) and same_table(again.rounds, finished.rounds)
    assert same_table(duplicate(finished.rounds), finished.rounds)
    models = duplicate(finished.models)
    (weight,), (known,) = (it["ifca"][1]["cluster-0"].values() for it in (models, finished.models))
    assert np.array_equal(weight, known)
    assert list(duplicate(finished.models["ifca"])) == [0, 1]
    assert Path(duplicate(finished.report())) == Path(finished.report())


def test_a_pickled_run_is_read_without_its_folder(finished: kinfolk.Run, folder: Path) -> None:
    shutil.copytree(finished.folder, folder / "run")
    (folder / "run.pickle").write_bytes(pickle.dumps(kinfolk.load(folder / "run")))
    shutil.rmtree(folder / "run")
    # In a new process, as a pool of processes has them.
    script = "import pickle; run = pickle.load(open('run.pickle', 'rb')); print(run.clients['metric'].tolist())"
    read = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert read.stdout == f"{finished.clients['metric'].tolist()}\n"


def test_shows_itself(finished: kinfolk.Run, tiny: dict[str, Any]) -> None:
    lines = repr(finished).splitlines()
    assert lines[0].split()[:2] == ["method", "mse"]
    assert lines[-1] == f"folder: {finished.folder}"
    page = finished._repr_html_()
    assert page.startswith("<table>") and "<td>ifca</td>" in page
    assert "<th>seed</th>" in finished.clients._repr_html_()
    assert "more rows" in finished.clients._repr_html_()
    sly = kinfolk.run(tiny, out="<b>sly</b>")
    assert "<b>" not in sly._repr_html_() and "&lt;b&gt;sly" in sly._repr_html_()


def test_the_report(finished: kinfolk.Run) -> None:
    report = finished.report()
    assert Path(report) == finished.folder / "report.html"
    frame = report._repr_html_()
    assert frame.startswith('<iframe srcdoc="&lt;!doctype') or frame.startswith('<iframe srcdoc="&lt;!DOCTYPE')
    assert "<script" not in frame


def test_a_notebook_shows_one_line_and_keeps_what_was_said(
    tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    class ZMQInteractiveShell:
        pass

    class Shell(ZMQInteractiveShell):
        """As Google Colab has one."""

    class Handle:
        def update(self, content: object) -> None:
            shown.append(content._repr_html_())  # type: ignore[attr-defined]

    def display(content: object, display_id: bool) -> Handle:
        assert display_id
        return Handle()

    interactive, inner = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    monkeypatch.setattr(interactive, "get_ipython", Shell, raising=False)
    monkeypatch.setattr(inner, "display", display, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", interactive)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)
    kinfolk.run(tiny, method={"fedavg": {"step": 1e6, "rounds": 200}})
    assert any("ifca (seed 0)" in text for text in shown)
    assert shown[-1].startswith("<pre>fedavg (seed 0): diverged")
    shown.clear()
    kinfolk.run(tiny, progress=False, out="silent")
    assert not shown
