"""The example's own SuperLink and SuperNodes, as the tests use them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
EXAMPLE = ROOT / "examples" / "flower"
PROGRAM = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "kinfolk"
os.environ["KINFOLK"] = str(PROGRAM)
sys.path.insert(0, str(EXAMPLE))

from loopback import Loopback  # noqa: E402


@pytest.fixture(scope="session")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with Loopback(tmp_path_factory.mktemp("loopback")) as loopback:
        yield loopback
