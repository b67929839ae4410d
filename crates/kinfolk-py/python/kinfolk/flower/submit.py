"""Runs an experiment on a SuperLink without an app folder of the user's: packs one, submits it, follows it, and stops it on Ctrl-C.

The request comes as JSON on stdin, and what happens goes out as JSON on stdout, one event a line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EVENT = "kinfolk-event: "
"""What the lines begin with in which a server app tells an event."""

PROJECT = """\
[project]
name = "kinfolk-on-flower"
version = "1.0.0"
description = "An experiment of Kinfolk's"
license = "MIT OR Apache-2.0"
dependencies = ["kinfolk[flower]"]

[tool.flwr.app]
publisher = "kinfolk"
fab-include = ["/*.py", "/*.toml"]

[tool.flwr.app.components]
serverapp = "server:app"
clientapp = "client:app"

[tool.flwr.app.config]
out = ""
machines = ""
wait = ""
timeout = ""
resume = ""
events = true
"""
SERVER = """\
from pathlib import Path

from kinfolk.flower import server_app

app = server_app(Path(__file__).with_name("experiment.toml"))
"""
CLIENT = """\
from kinfolk.flower import client_app

app = client_app()
"""
CONNECTION = "superlink"
"""The name of a connection that is given by its address."""


class Refused(Exception):
    """What Flower's program said when it did not do what it was asked."""


def main() -> None:
    try:
        status = submit(json.load(sys.stdin))
    except Refused as error:
        tell({"event": "failed", "kind": "federation", "reason": str(error)})
        sys.exit(1)
    except KeyboardInterrupt:
        tell({"event": "failed", "kind": "stopped", "reason": "stopped"})
        sys.exit(130)
    sys.exit(0 if status == "finished:completed" else 1)


def submit(request: Mapping[str, Any]) -> str:
    """Runs what the request says, and gives the status in which Flower's run ends."""
    with tempfile.TemporaryDirectory(prefix="kinfolk-") as folder:
        app = write_app(Path(folder) / "app", request["experiment"])
        flwr = Flower(request, Path(folder) / "home")
        settings = " ".join(f"{key}={json.dumps(value)}" for key, value in request["settings"].items())
        answer = json.loads(flwr.ask("run", str(app), flwr.connection, "--run-config", settings, "--format", "json"))
        if "run-id" not in answer:
            raise Refused(f"flwr run: {answer.get('error-message', answer)}")
        run = str(answer["run-id"])
        try:
            with flwr.log(run) as lines:
                for line in lines:
                    pass_on(line)
        except KeyboardInterrupt:
            flwr.ask("stop", run, flwr.connection)
            raise
        runs = json.loads(flwr.ask("ls", flwr.connection, "--run-id", run, "--format", "json"))["runs"]
        return str(runs[0]["status"])


def write_app(folder: Path, experiment: str) -> Path:
    folder.mkdir()
    files = {"pyproject.toml": PROJECT, "server.py": SERVER, "client.py": CLIENT, "experiment.toml": experiment}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


class Flower:
    """Flower's own program, with a connection that its configuration has, or one that is given."""

    def __init__(self, request: Mapping[str, Any], home: Path) -> None:
        superlink = request["superlink"]
        beside = Path(sys.executable).parent
        self._environment = os.environ | {
            "PATH": f"{beside}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
        }
        if ":" not in superlink:
            self.connection = superlink
            return
        self.connection = CONNECTION
        security = "insecure = true" if request["insecure"] else ""
        if request["root_certificates"]:
            security = f"root-certificates = {json.dumps(os.path.abspath(request['root_certificates']))}"
        home.mkdir()
        text = f"[superlink.{CONNECTION}]\naddress = {json.dumps(superlink)}\n{security}\n"
        (home / "config.toml").write_text(text, encoding="utf-8")
        self._environment["FLWR_HOME"] = str(home)

    def ask(self, *arguments: str) -> str:
        done = subprocess.run(
            ["flwr", *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            # Ctrl-C is for this process, which tells Flower.
            start_new_session=True,
        )
        if done.returncode != 0:
            raise Refused(f"flwr {arguments[0]}: {' '.join(f'{done.stdout} {done.stderr}'.split())}")
        return done.stdout

    @contextmanager
    def log(self, run: str) -> Iterator[Iterator[str]]:
        """What a run says, until it ends."""
        command = ["flwr", "log", run, self.connection, "--stream"]
        with subprocess.Popen(
            command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                assert process.stdout is not None
                yield (line.rstrip("\n") for line in process.stdout)
            finally:
                process.terminate()


def pass_on(line: str) -> None:
    """Tells what a line of a run's log says, as far as it is ours."""
    if line.startswith(EVENT):
        tell(json.loads(line.removeprefix(EVENT)))
    elif line.startswith("kinfolk: "):
        tell({"event": "line", "text": line.removeprefix("kinfolk: ")})


def tell(event: Mapping[str, Any]) -> None:
    print(json.dumps(event), flush=True)
