"""The pages of the docs are run from top to bottom."""

from __future__ import annotations

import re
from typing import Any

import pytest
from conftest import ROOT


@pytest.mark.parametrize("page", ["from-a-notebook.md", "own-models.md"])
def test_a_page(page: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 3
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"block {number} of {page}", "exec"), names)
