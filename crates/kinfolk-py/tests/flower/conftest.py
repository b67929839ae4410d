"""The example's own SuperLink and SuperNodes, as the tests use them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "flower"
sys.path.insert(0, str(EXAMPLE))

from loopback import Loopback  # noqa: E402


@pytest.fixture(scope="session")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with Loopback(tmp_path_factory.mktemp("loopback")) as loopback:
        yield loopback
