"""The package itself: light to import, typed, and it says what there is."""

from __future__ import annotations

import pickle
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import kinfolk
from conftest import ROOT, TARGET

SAMPLE = '''
from typing import Any

import kinfolk
import numpy as np

changes: dict[str, Any] = {"method.ifca.step": 0.1}
run: kinfolk.Run = kinfolk.run("quickstart", data={"clients": 4}, **changes)
names: list[str] = list(run.clients)
label: str = run.models["ifca"][0]["cluster-0"]["layer0.weight"].dtype.name
found = kinfolk.cluster.kmeans(np.zeros((3, 2)), 1)
sizes: list[int] = found.sizes.tolist()
kind: str = kinfolk.Error("x").kind
model: kinfolk.FamilyRegressor = kinfolk.FamilyRegressor(client="c").fit({}, [1.0])
families: list[int] = model.clients_["family"].tolist()
share: float = model.heterogeneity_.between
clusterer: kinfolk.cluster.KMeans = kinfolk.cluster.KMeans(3).fit(np.zeros((3, 2)))
words: list[str] = [setting.wanted for entry in kinfolk.methods() for setting in entry.settings]
'''


def test_import_is_light() -> None:
    script = "import sys, kinfolk; print(sorted({'pandas', 'polars', 'pyarrow', 'sklearn', 'torch', 'flwr', 'IPython'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "[]\n"


def test_everything_promised_is_there() -> None:
    assert all(hasattr(kinfolk, name) for name in kinfolk.__all__)
    assert all(hasattr(kinfolk.cluster, name) for name in kinfolk.cluster.__all__)
    assert (Path(kinfolk.__file__).parent / "py.typed").is_file()


def named_tuples() -> list[type]:
    """Every named tuple that the package shows."""
    shown = [getattr(place, name) for place in (kinfolk, kinfolk.cluster) for name in place.__all__]
    return [kind for kind in shown if isinstance(kind, type) and hasattr(kind, "_fields")]


@pytest.mark.parametrize("kind", named_tuples())
def test_help_says_what_every_field_means(kind: type) -> None:
    text = pydoc.render_doc(kind)
    assert "Alias for field number" not in text
    assert all(getattr(kind, name).__doc__ in text for name in kind._fields)  # type: ignore[attr-defined]


def test_help_says_what_a_run_has() -> None:
    assert all(f"`{name}`" in str(kinfolk.Run.__doc__) for name in ("folder", "summary", "clients", "rounds"))


def test_types(folder: Path) -> None:
    sample = folder / "sample.py"
    sample.write_text(SAMPLE)
    package = Path(kinfolk.__file__).parent
    # What numpy's types are is looked up once, not in every run of the tests.
    arguments = ["--strict", "--no-error-summary", "--cache-dir", str(TARGET / "mypy"), str(package), str(sample)]
    # The test's own folder has no settings.
    arguments += ["--config-file", str(ROOT / "pyproject.toml")]
    ended = subprocess.run([sys.executable, "-m", "mypy", *arguments], capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.returncode) == ("", 0)


@pytest.mark.parametrize("what", ["methods", "models", "datasets"])
def test_what_there_is(what: str, program: str) -> None:
    entries: list[kinfolk.Entry] = getattr(kinfolk, what)()
    listed = subprocess.run([program, "list", what], capture_output=True, text=True, timeout=30, check=True).stdout
    assert [entry.name for entry in entries] == [line.split()[0] for line in listed.splitlines()[2:]]
    assert all(entry.summary in listed for entry in entries)


def test_settings_are_told() -> None:
    ifca = next(entry for entry in kinfolk.methods() if entry.name == "ifca")
    clusters = next(setting for setting in ifca.settings if setting.name == "clusters")
    assert clusters.default == "required" and clusters.wanted
    assert "quickstart" in [preset.name for preset in kinfolk.presets()]


def test_errors_travel_between_processes() -> None:
    with pytest.raises(kinfolk.Error) as caught:
        kinfolk.run({})
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.kind) == (str(caught.value), "settings")
