"""Runs an experiment on a SuperLink without an app folder of the user's: packs one, submits it and follows it.

The request comes as a line of JSON on stdin, and what happens goes out as JSON on stdout, one event a line. The run is stopped when
stdin ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
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
GOES_ON = "the same command with --resume goes on, if it had --out"
CONNECTION = "superlink"
"""The name of a connection that is given by its address."""


class Refused(Exception):
    """What Flower's program said when it did not do what it was asked."""


def main() -> None:
    # Ctrl-C is for who started this, and closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = submit(json.loads(sys.stdin.readline()))
    except Refused as error:
        tell({"event": "failed", "kind": "federation", "reason": str(error)})
        sys.exit(1)
    sys.exit(0 if status == "finished:completed" else 1)


def submit(request: Mapping[str, Any]) -> str:
    """Runs what the request says, and gives the status in which Flower's run ends."""
    with tempfile.TemporaryDirectory(prefix="kinfolk-") as folder:
        app = write_app(Path(folder) / "app", request["experiment"])
        flwr = Flower(request, Path(folder) / "home")
        settings = " ".join(f"{key}={json.dumps(value)}" for key, value in request["settings"].items())
        answer = json.loads(flwr.ask("run", str(app), flwr.connection, "--run-config", settings, "--format", "json"))
        if "run-id" not in answer:
            raise Refused(f"flwr run: {' '.join(str(answer.get('error-message', answer)).split())}")
        run = str(answer["run-id"])
        stopped = threading.Event()
        not_stopped: list[Refused] = []
        with flwr.log(run) as log:

            def stop_at_the_end_of_stdin() -> None:
                sys.stdin.read()
                stopped.set()
                try:
                    flwr.ask("stop", run, flwr.connection)
                except Refused as error:
                    not_stopped.append(error)
                log.terminate()

            threading.Thread(target=stop_at_the_end_of_stdin, daemon=True).start()
            assert log.stdout is not None
            for line in log.stdout:
                pass_on(line.rstrip("\n"))
        if stopped.is_set():
            tell({"event": "failed", "kind": "stopped", "reason": "stopped"})
        found = json.loads(flwr.ask("ls", flwr.connection, "--run-id", run, "--format", "json"))
        if not found.get("runs"):
            why = " ".join(str(found.get("error-message", found)).split())
            raise Refused(f"the SuperLink knows of the run no more, or is gone: {why}; {GOES_ON}")
        status = str(found["runs"][0]["status"])
        # A run that ended by itself in the meantime cannot be stopped, nor need it be.
        if not_stopped and not status.startswith("finished"):
            raise Refused(f"the run goes on: {not_stopped[0]}")
        return status


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
            # Ctrl-C is for who started this.
            start_new_session=True,
        )
        if done.returncode != 0:
            raise Refused(f"flwr {arguments[0]}: {' '.join(f'{done.stdout} {done.stderr}'.split())}")
        return done.stdout

    def log(self, run: str) -> subprocess.Popen[str]:
        """What a run says, until it ends."""
        return subprocess.Popen(
            ["flwr", "log", run, self.connection, "--stream"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )


def pass_on(line: str) -> None:
    """Tells what a line of a run's log says, as far as it is ours."""
    if line.startswith(EVENT):
        tell(json.loads(line.removeprefix(EVENT)))
    elif line.startswith("kinfolk: "):
        tell({"event": "line", "text": line.removeprefix("kinfolk: ")})


def tell(event: Mapping[str, Any]) -> None:
    try:
        print(json.dumps(event), flush=True)
    except BrokenPipeError:
        # Who started this has heard enough. Python would flush once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
