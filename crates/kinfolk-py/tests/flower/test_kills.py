"""SIGKILL of the server's app, of the SuperLink and of a node, with TLS and a key for every node: the run goes on, and every file of
it is that of a run that was left alone.

A moment or two each; `make kills-flower KILLS=10` takes more.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PROGRAM
from found import wait_until, without_seconds
from loopback import Loopback
from run import MACHINES, write_node

HERE = Path(__file__).resolve().parent
KILLS = int(os.environ.get("KINFOLK_FLOWER_KILLS", "1"))
SEED = int(os.environ.get("KINFOLK_FLOWER_KILLS_SEED", "0"))


class Machines:
    """A SuperLink with its database on disk, three nodes, and a run on them that may be killed."""

    def __init__(self, loopback: Loopback) -> None:
        self.loopback = loopback
        self.files: dict[str, Path] = {}
        self.log = loopback.folder / "run.log"
        for number, name in enumerate(MACHINES):
            self.files[name] = write_node(loopback.folder / name, number, name)
            loopback.add_key(name)
            loopback.start_node(name, self.files[name])

    def start(self, out: Path, *, resume: bool = False) -> subprocess.Popen[bytes]:
        line = [PROGRAM, "run", "--on", "flower", "--superlink", "loopback", "--machines", "3", "--timeout", "60"]
        line += [HERE / "killed.toml", "--out", out, *(["--resume"] if resume else [])]
        environment = self.loopback.environment("flwr") | {"KINFOLK_PYTHON": sys.executable}
        with open(self.log, "wb") as log:
            return subprocess.Popen(line, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def finish(self, out: Path, *, resume: bool = False) -> None:
        assert self.start(out, resume=resume).wait() == 0, self.log.read_text()

    def answered(self) -> int:
        """How many questions one of the nodes has answered in its life."""
        return sum(self.loopback.log(MACHINES[0]).count(f"{kind}, ") for kind in ("train", "evaluate"))

    def results(self, out: Path) -> dict[str, Any]:
        """Everything that a run leaves: its folder, and clients' own models on their machines."""
        own = {
            f"{name}/{path.name}": path.read_bytes()
            for name, file in self.files.items()
            for path in file.parent.glob("kinfolk-models/killed/local/0/client-*")
        }
        return without_seconds(out) | own


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    # The server's app gets it from the SuperLink.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KINFOLK_CHECKPOINT_SECONDS", "0")
        with Loopback(tmp_path_factory.mktemp("killed"), database=True) as loopback:
            yield Machines(loopback)


@pytest.fixture(scope="module")
def alone(machines: Machines, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int]:
    """What a run leaves that nobody disturbs, and how many questions it asks."""
    out = tmp_path_factory.mktemp("alone") / "run"
    before = machines.answered()
    machines.finish(out)
    left = machines.results(out)
    assert {"clients.csv", "models/ifca/0/cluster-0.safetensors", "north/client-shop-00.safetensors"} <= left.keys()
    return left, machines.answered() - before


def moments(who: str, count: int, questions: int) -> Iterator[tuple[int, float]]:
    """After how many questions to kill, and how many seconds later."""
    draw = random.Random(f"{who} {SEED}")
    for number in range(count):
        yield int((number + draw.random()) * questions / count), draw.uniform(0.0, 0.3)


def started_by(process: int) -> dict[int, str]:
    """The processes that a process has started, and those that they have, with their command lines."""
    parents, lines = {}, {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                lines[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
    found, new = {process}, {process}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return {child: lines[child] for child in found - {process}}


def server_apps(loopback: Loopback) -> list[int]:
    children = started_by(loopback.processes["superlink"].pid)
    return [process for process, line in children.items() if "flwr-serverapp" in line]


@pytest.mark.parametrize("who", ["server app", "SuperLink", "node"])
def test_a_process_that_is_killed_costs_nothing_but_time(
    who: str, machines: Machines, alone: tuple[dict[str, Any], int], tmp_path: Path
) -> None:
    loopback, (whole, questions) = machines.loopback, alone
    for number, (question, seconds) in enumerate(moments(who, KILLS, questions)):
        out = tmp_path / f"{who}-{number}"
        began, before = time.monotonic(), machines.answered()
        run = machines.start(out)
        wait_until(lambda: server_apps(loopback) != [] and machines.answered() >= before + question)
        time.sleep(seconds)
        if who == "node":
            killed = MACHINES[1 + number % 2]
            said = loopback.log(killed)
            loopback.kill(killed)
            loopback.start_node(killed, machines.files[killed])
            assert run.wait() == 0, machines.log.read_text()
            assert "refused: " not in said + loopback.log(killed)
        else:
            is_begun = (out / "experiment.toml").exists()
            if who == "SuperLink":
                loopback.kill("superlink")
                wait_until(lambda: run.poll() is not None)
                loopback.start_superlink()
            else:
                for process in server_apps(loopback):
                    os.kill(process, signal.SIGKILL)
                if number == 0 < KILLS - 1:
                    # Flower notices after a minute.
                    wait_until(lambda: run.poll() is not None)
                run.send_signal(signal.SIGINT)
                run.wait()
            ended = (out / "summary.json").exists()
            assert ended or run.returncode != 0
            if not ended:
                machines.finish(out, resume=is_begun)
        print(f"{who}: killed {seconds:.2f} s after question {question} of {questions}, {time.monotonic() - began:.1f} s in all")
        left = machines.results(out)
        assert {name for name in whole | left if whole.get(name) != left.get(name)} == set(), f"{question} of {questions}"
