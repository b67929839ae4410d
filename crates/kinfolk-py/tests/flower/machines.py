"""A SuperLink with its database on disk, three nodes, and a run on them that may be disturbed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from found import without_seconds
from loopback import Loopback
from run import MACHINES, write_node

HERE = Path(__file__).resolve().parent


class Machines:
    """A SuperLink with its database on disk, three nodes, and a run on them that may be killed."""

    def __init__(self, loopback: Loopback, program: Path) -> None:
        self.loopback = loopback
        self.program = program
        self.files: dict[str, Path] = {}
        self.log = loopback.folder / "run.log"
        for number, name in enumerate(MACHINES):
            self.files[name] = write_node(loopback.folder / name, number, name)
            loopback.add_key(name)
            loopback.start_node(name, self.files[name])

    def start(self, out: Path, *, resume: bool = False) -> subprocess.Popen[bytes]:
        line = [self.program, "run", "--on", "flower", "--superlink", "loopback", "--machines", "3", "--timeout", "60"]
        line += [HERE / "killed.toml", "--out", out, *(["--resume"] if resume else [])]
        environment = self.loopback.environment("flwr") | {"KINFOLK_PYTHON": sys.executable}
        with open(self.log, "wb") as log:
            return subprocess.Popen(line, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def finish(self, out: Path, *, resume: bool = False) -> None:
        assert self.start(out, resume=resume).wait() == 0, self.log.read_text()

    def answered(self) -> int:
        """How many questions one of the nodes has answered in its life."""
        return sum(self.loopback.log(MACHINES[0]).count(f"{kind}, ") for kind in ("train", "evaluate"))

    def logs(self) -> str:
        """What the nodes have said in their lives."""
        return "".join(self.loopback.log(name) for name in self.files)

    def results(self, out: Path) -> dict[str, Any]:
        """Everything that a run leaves: its folder, and clients' own models on their machines."""
        own = {
            f"{name}/{path.name}": path.read_bytes()
            for name, file in self.files.items()
            for path in file.parent.glob("kinfolk-models/killed/local/0/client-*")
        }
        return without_seconds(out) | own


def differences(whole: dict[str, Any], left: dict[str, Any]) -> set[str]:
    """The files in which two runs differ."""
    return {name for name in whole | left if whole.get(name) != left.get(name)}
