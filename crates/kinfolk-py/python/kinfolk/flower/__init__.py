"""Methods on real machines: apps for a stock Flower SuperLink and its SuperNodes.

The server's app runs the methods; a machine's app answers for the clients whose rows are there. Each question is one
message to each machine, of type `query.kinfolk`, `train.kinfolk` or `evaluate.kinfolk`.
"""

from __future__ import annotations

import json
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from .._kinfolk import Error, Site, fit_remote, run_remote
from ..families import load_fitted
from ..runs import Run

TESTED_VERSION = "1.41.0"

try:
    import tomllib

    import flwr
    from flwr.app import ConfigRecord, Context, Message
    from flwr.app import Error as ReplyError
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError as missing:
    error = Error(
        f"kinfolk.flower: Flower cannot be imported ({missing}); want Python 3.11 or later, and flwr {TESTED_VERSION}: "
        f"pip install flwr=={TESTED_VERSION}"
    )
    error.kind = "unsupported"
    raise error from missing

from .exchange import Exchange, fault, one_line, pack, say, unpack
from .resident import serve
from .submit import EVENT

if flwr.__version__ != TESTED_VERSION:
    warnings.warn(f"kinfolk.flower: got flwr {flwr.__version__}; what was tested is {TESTED_VERSION}", stacklevel=2)

__all__ = ["TESTED_VERSION", "client_app", "serve", "server_app"]

# Flower's own number for an exception in the app of a client.
CLIENT_APP_RAISED_EXCEPTION = 2
# Seconds in which the app of a SuperLink that died has ended.
LINGERS = 90.0
# What a method can end with that is not a result.
FAULTS = ("diverged", "failed")


def server_app(
    experiment: str | PathLike[str] | Mapping[str, Any],
    *,
    out: str | PathLike[str] | None = None,
    start: Any = None,
    machines: int = 1,
    wait: float = 300.0,
    timeout: float = 600.0,
) -> ServerApp:
    """The app that runs an experiment's methods on the clients of all connected machines, or fits them: a table `[fit]`.

    It begins when `machines` SuperNodes are connected, for which it waits `wait` seconds at most, and counts a machine
    as missing that gives no answer to a question within `timeout` seconds. What `flwr run --run-config` says under the
    same names goes before; `experiment` is then looked for beside the one given here, `set` has further settings
    in the form `method.ifca.rounds=5, seed=1`, and `resume` goes on with an unfinished run in `out`.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        given = _Given(context.run_config)
        events = given.flag("events")
        exchange = Exchange(
            grid,
            count=given.number("machines", machines),
            wait=given.number("wait", wait),
            timeout=given.number("timeout", timeout),
            talks=not events,
        )
        wanted = _find(experiment, given.text("experiment"))
        place = given.text("out") or out
        if not events:
            folder, found = _carry_out(wanted, given, exchange, place, start, _Teller(exchange))
            print(found if isinstance(found, Run) else f"{found.show()}\nmodel: {folder}", flush=True)
            _check(found)
            return
        try:
            folder, found = _carry_out(wanted, given, exchange, place, start, _tell_event)
        except Error as error:
            _tell_event({"event": "failed", "kind": error.kind, "reason": str(error)})
            raise
        told = {"summary": json.dumps(found.summary)} if isinstance(found, Run) else {"shown": found.show()}
        _tell_event({"event": "ended", "folder": str(Path(folder).resolve()), **told})
        _check(found)

    return app


def _carry_out(
    wanted: str | PathLike[str] | Mapping[str, Any],
    given: _Given,
    exchange: Exchange,
    out: str | PathLike[str] | None,
    start: Any,
    progress: Callable[[Mapping[str, Any]], None],
) -> tuple[Path, Any]:
    """The folder of a run or of a fit, and what is in it."""
    if (file := _with_fit(wanted)) is not None:
        folder = fit_remote(
            _merged(file, given.settings()), exchange.machines, exchange, out=out, told=_say_all
        )
        return folder, load_fitted(folder)
    resume = given.flag("resume")

    def run() -> Path:
        return run_remote(
            wanted,
            given.settings(),
            exchange.machines,
            exchange,
            out=out,
            start=start,
            resume=resume,
            progress=progress,
        )

    folder = _when_free(run) if resume else run()
    return folder, Run(folder)


def _when_free(run: Callable[[], Path]) -> Path:
    """Runs what goes on, as soon as its folder is free: the app of a SuperLink that died takes a while to end."""
    deadline, said = time.monotonic() + LINGERS, False
    while True:
        try:
            return run()
        except Error as error:
            if ": in use by " not in str(error) or time.monotonic() >= deadline:
                raise
            if not said:
                say(f"waiting up to {LINGERS:g} s: {one_line(str(error).splitlines()[0])}")
            said = True
        time.sleep(1.0)


def _tell_event(event: Mapping[str, Any]) -> None:
    """Tells the program that submitted the run, on a line of its own."""
    print(f"{EVENT}{json.dumps(event)}", flush=True)


def client_app(*, clients: Callable[[Context], Mapping[str, object]] | None = None) -> ClientApp:
    """The app that answers for a machine's clients.

    They are the callable's if there is one: it gets Flower's context and gives clients by their ids. Else the
    SuperNode's `--node-config` says where they are: `node="/path/of/node.toml"` names the machine's own file, which says
    where its table is and what may be read of it, and `partition-id=0 num-partitions=3` has a part of the public data
    set that the experiment names. Whatever goes wrong stands in this machine's log; the server hears no more than it may.
    """
    app = ClientApp()

    @app.query("kinfolk")
    @app.train("kinfolk")
    @app.evaluate("kinfolk")
    def answer(message: Message, context: Context) -> Message:
        try:
            reply, state, log = _site(context, clients).answer(unpack(message.content), _state(context))
        except Exception as error:
            # The whole story belongs into this machine's log: an exception's text may quote rows, paths and code.
            traceback.print_exc()
            told = getattr(error, "told", "an error of this machine's own code; its log says more")
            return Message(ReplyError(CLIENT_APP_RAISED_EXCEPTION, told), reply_to=message)
        for line in log:
            say(line)
        context.state["kinfolk"] = ConfigRecord({"run": str(context.run_id), "state": state})
        return Message(pack(reply), reply_to=message)

    return app


class _Given:
    """What `--run-config` says. Flower allows only keys that the app declares, so empty text stands for nothing."""

    def __init__(self, config: Mapping[str, bool | float | int | str]) -> None:
        self._config = config

    def text(self, key: str) -> str | None:
        value = self._config.get(key, "")
        if not isinstance(value, str):
            raise fault("settings", f"`--run-config` {key}: got {value!r}, want text")
        return value or None

    def number(self, key: str, default: float) -> float:
        value = self._config.get(key, "")
        if value == "":
            return default
        if isinstance(value, (bool, str)) or not value > 0:
            raise fault("settings", f"`--run-config` {key}: got {value!r}, want a number above 0")
        return value

    def flag(self, key: str) -> bool:
        value = self._config.get(key, "")
        if value != "" and not isinstance(value, bool):
            raise fault("settings", f"`--run-config` {key}: got {value!r}, want true or false")
        return bool(value)

    def settings(self) -> dict[str, Any]:
        """The experiment's settings: all in `set`, which is the inside of a TOML table, and `seed`."""
        text = self.text("set") or ""
        try:
            settings: dict[str, Any] = tomllib.loads(f"set = {{{text}}}")["set"]
        except tomllib.TOMLDecodeError as error:
            raise fault(
                "settings",
                f"`--run-config` set: got {text!r} ({error}),"
                " want settings such as method.ifca.rounds=5, model.kind='linear'",
            ) from error
        if self._config.get("seed", "") != "":
            settings["seed"] = self._config["seed"]
        return settings


def _find(
    experiment: str | PathLike[str] | Mapping[str, Any], name: str | None
) -> str | PathLike[str] | Mapping[str, Any]:
    """The experiment by that name: a file beside the app's own one, else any file or preset."""
    if name is None:
        return experiment
    if isinstance(experiment, (str, PathLike)) and (beside := Path(experiment).parent / name).is_file():
        return beside
    return name


def _say_all(lines: list[str]) -> None:
    for line in lines:
        say(line)


def _with_fit(experiment: str | PathLike[str] | Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The experiment's tables, where it is a fit."""
    if not isinstance(experiment, Mapping):
        path = Path(experiment)
        if not path.is_file():
            return None
        try:
            experiment = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            # Said better where experiments are read.
            return None
    return experiment if "fit" in experiment else None


def _merged(tables: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Tables with settings that go before theirs."""
    merged = dict(tables)
    for key, value in more.items():
        merged[key] = _merged(merged.get(key, {}), value) if isinstance(value, Mapping) else value
    return merged


class _Teller:
    """Says what happens in a run, as far as it concerns more than one question."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._questions: dict[str, int] = {}
        self._begun = False

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "planned":
            seeds = f" for each of {event['seeds']} seeds" if event["seeds"] > 1 else ""
            self._questions[event["label"]] = event["questions"] * event["seeds"]
            say(f"{event['label']}: about {self._cost(event['questions'])}{seeds}")
        elif event["event"] == "method":
            if not self._begun and len(self._questions) > 1:
                say(f"in all about {self._cost(sum(self._questions.values()))}")
            self._begun = True
            say(f"{event['label']}, seed {event['seed']}")
        elif event["event"] == "finished":
            reason = f": {one_line(event['reason'])}" if event["reason"] else ""
            say(f"{event['label']}, seed {event['seed']}: {event['status']}{reason}")

    def _cost(self, questions: int) -> str:
        """So many questions, and how long that is if they go on as they have gone so far."""
        seconds = self._exchange.usual_seconds()
        if seconds is None:
            return f"{questions} questions"
        return f"{questions} questions, {duration(questions * seconds)} at {seconds:.1f} s each as so far"


def duration(seconds: float) -> str:
    """In the two largest units that matter."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _check(found: Any) -> None:
    """A run of which a method failed has failed; an exception is how Flower learns that."""
    methods = found.summary["methods"] if isinstance(found, Run) else []
    ends = {method["label"]: method["status"] for method in methods}
    if failed := [f"{label} {status}" for label, status in ends.items() if status in FAULTS]:
        raise fault("federation", f"not all methods succeeded: {', '.join(failed)}")


def _site(context: Context, clients: Callable[[Context], Mapping[str, object]] | None) -> Site:
    """The clients of this machine."""
    config = context.node_config
    node, part, count = (config.get(key) for key in ("node", "partition-id", "num-partitions"))
    file = node if isinstance(node, str) else None
    if clients is not None and node == file:
        return Site(node=file, clients=dict(clients(context)))
    if file is not None and (part, count) == (None, None):
        return Site(node=file)
    if node is None and "table" not in config and type(part) is int and type(count) is int and 0 <= part < count:
        return Site(partition=(part, count))
    found = ", ".join(f"{key}={value!r}" for key, value in config.items()) or "nothing"
    want = (
        'want either node="/path/of/node.toml" or partition-id=0 num-partitions=3 (partition-id below num-partitions); '
        "a table is named in the file, with the columns that may be read: see docs/on-real-machines.md"
    )
    error = fault("settings", f"`--node-config`: got {found}, {want}")
    error.told = f"`--node-config` of its SuperNode: {want}"
    raise error


def _state(context: Context) -> bytes:
    """What this machine was given to keep at the last message of this run. Flower may hand over an older run's."""
    record = context.state.config_records.get("kinfolk")
    if record is None or record["run"] != str(context.run_id):
        return b""
    state = record["state"]
    return state if isinstance(state, bytes) else b""
