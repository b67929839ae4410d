"""The pages of the docs are run from top to bottom."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT


def run_page(page: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 3
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"block {number} of {page}", "exec"), names)


def test_the_notebook_prints_what_is_in_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for table in (ROOT / "examples").glob("*.csv"):
        shutil.copy(table, folder)
    path = ROOT / "examples" / "bakeries.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"cell {number} of the notebook", "exec"), names)
        printed = capsys.readouterr().out
        if os.environ.get("KINFOLK_BLESS"):
            cell["outputs"][0]["text"] = printed.splitlines(keepends=True)
        kept = "".join(line for output in cell["outputs"] for line in output["text"])
        assert printed == kept, f"cell {number}; `make bless` accepts it"
    if os.environ.get("KINFOLK_BLESS"):
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def test_own_models() -> None:
    run_page("own-models.md")


def test_the_ari_of_a_notebook_is_of_one_seed_each(capsys: pytest.CaptureFixture[str]) -> None:
    run_page("from-a-notebook.md")
    printed = capsys.readouterr().out
    summary = re.findall(r"^(\d+) \S+ ([-.\d]+)$", printed, re.MULTILINE)
    tables = re.findall(r"^(\d+) ([-.\d]+)$", printed, re.MULTILINE)
    # Clusters of different seeds have nothing in common: pooled, they would give a number that is nobody's.
    assert [seed for seed, _ in tables] == ["0", "1", "2"]
    assert [(seed, float(ari)) for seed, ari in tables] == [(seed, float(ari)) for seed, ari in summary]
