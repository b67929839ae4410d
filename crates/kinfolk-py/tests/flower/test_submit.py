"""How a run on a SuperLink is stopped, with a program in the place of Flower's that answers as a test says."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from kinfolk.flower import submit

REQUEST = {"experiment": "", "superlink": "somewhere", "insecure": False, "root_certificates": None, "settings": {}}
FLWR = """\
#!/bin/sh
case $1 in
  run) echo '{"run-id": 7}' ;;
  log) exec sleep 600 ;;
  stop) echo '[code: 18] Run is already finished.' >&2; exit 1 ;;
  ls) echo '{"runs": [{"status": "STATUS"}]}' ;;
esac
"""


def stop_at_once(folder: Path, status: str, monkeypatch: pytest.MonkeyPatch) -> str:
    flwr = folder / "flwr"
    flwr.write_text(FLWR.replace("STATUS", status), encoding="utf-8")
    flwr.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return submit.submit(REQUEST)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_run_that_ended_before_it_could_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stop_at_once(tmp_path, "finished:failed", monkeypatch) == "finished:failed"


def test_a_run_that_cannot_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(submit.Refused, match="the run goes on: flwr stop: "):
        stop_at_once(tmp_path, "running", monkeypatch)
