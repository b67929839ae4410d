"""Who is asked, who is missing and why, on a grid that is played here."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import flwr
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import kinfolk
from kinfolk import flower
from kinfolk.flower import exchange


class Grid:
    """Machines answer with their message in capitals, unless they are among the silent, broken or refused.

    Those that are `odd` answer with content of their own.
    """

    def __init__(self, *machines: int) -> None:
        self.activated = {machine: "first" for machine in machines}
        self.silent: set[int] = set()
        self.broken: set[int] = set()
        self.refused: set[int] = set()
        self.odd: dict[int, RecordDict] = {}
        self.code = 2
        self.reason: str | None = "it broke"
        self.sent: list[int] = []
        self.open: dict[str, Message] = {}

    def get_nodes(self) -> list[Any]:
        return [
            SimpleNamespace(node_id=machine, name=f"name-{machine}", last_activated_at=since)
            for machine, since in self.activated.items()
        ]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            machine = message.metadata.dst_node_id
            self.sent.append(machine)
            ids.append("" if machine in self.refused else f"{len(self.sent)}")
            self.open[ids[-1]] = message
        return ids

    def pull_messages(self, ids: Iterable[str]) -> list[Message]:
        return [self.reply(each) for each in ids if self.open[each].metadata.dst_node_id not in self.silent]

    def reply(self, message_id: str) -> Message:
        message = self.open[message_id]
        message.metadata.__dict__["_message_id"] = message_id
        if message.metadata.dst_node_id in self.broken:
            return Message(flwr.app.Error(self.code, self.reason), reply_to=message)
        if message.metadata.dst_node_id in self.odd:
            return Message(self.odd[message.metadata.dst_node_id], reply_to=message)
        return Message(exchange.pack(exchange.unpack(message.content).upper()), reply_to=message)


@pytest.fixture(autouse=True)
def identity() -> None:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 2, 1


def exchanging(grid: Grid, *, timeout: float, count: int = 0) -> exchange.Exchange:
    return exchange.Exchange(grid, count=count, wait=0.0, timeout=timeout)  # type: ignore[arg-type]


def ask(carrier: exchange.Exchange, *machines: int) -> dict[int, bytes | str | None]:
    answers = carrier([(machine, b"what?") for machine in machines], "train")
    assert [machine for machine, _, _ in answers] == sorted(machines)
    assert all((reply is None) != (why is None) for _, reply, why in answers)
    return {machine: reply or why for machine, reply, why in answers}


def test_the_version_of_flower_is_the_one_that_is_tested() -> None:
    assert flwr.__version__ == flower.TESTED_VERSION


def test_all_machines_answer() -> None:
    assert ask(exchanging(Grid(7, 3), timeout=1.0), 7, 3) == {3: b"WHAT?", 7: b"WHAT?"}


def test_long_messages_are_cut_and_put_together() -> None:
    body = bytes(range(256)) * (exchange.PART_BYTES // 256 * 2) + b"end"
    content = exchange.pack(body)
    assert [len(record["bytes"]) for record in content.config_records.values()] == [exchange.PART_BYTES] * 2 + [3]
    assert exchange.unpack(content) == body
    assert exchange.unpack(exchange.pack(b"")) == b""


def test_a_machine_that_is_not_connected_is_missing_and_not_waited_for() -> None:
    grid = Grid(1)
    assert ask(exchanging(grid, timeout=60.0), 1, 2) == {1: b"WHAT?", 2: "it is not connected"}
    assert grid.sent == [1]


def test_an_error_on_a_machine_is_why_it_is_missing() -> None:
    grid = Grid(1, 2, 3)
    grid.broken, grid.refused = {2}, {3}
    refused = "the SuperLink did not accept the message for it"
    assert ask(exchanging(grid, timeout=1.0), 1, 2, 3) == {1: b"WHAT?", 2: "it broke", 3: refused}


def test_an_answer_that_cannot_be_read_costs_only_that_machine() -> None:
    grid = Grid(1, 2, 3, 4)
    grid.odd = {
        2: RecordDict(),
        3: RecordDict({"000000": ConfigRecord({"other": 1})}),
        4: RecordDict({"000000": ConfigRecord({"bytes": b"a"}), "000001": ConfigRecord({"bytes": "text"})}),
    }
    unreadable = {machine: "its answer cannot be read" for machine in grid.odd}
    assert ask(exchanging(grid, timeout=1.0), 1, 2, 3, 4) == {1: b"WHAT?", **unreadable}


def test_a_reply_without_content_or_to_nothing_that_was_asked_ends_no_run() -> None:
    grid = Grid(1, 2)
    played = grid.reply

    def reply(message_id: str) -> Message:
        message = played(message_id)
        if message.metadata.src_node_id == 1:
            message.__dict__["_content"] = None
        else:
            message.metadata.__dict__["_reply_to_message_id"] = "another"
        return message

    grid.reply = reply  # type: ignore[method-assign]
    assert ask(exchanging(grid, timeout=0.2), 1, 2) == {
        1: "its answer cannot be read",
        2: "it gave no answer within 0.2 seconds",
    }


def test_messages_that_are_too_large_are_not_accepted() -> None:
    grid = Grid(1, 2)
    grid.push_messages = lambda messages: []  # type: ignore[method-assign]
    refused = dict.fromkeys((1, 2), "the SuperLink did not accept the message for it")
    assert ask(exchanging(grid, timeout=1.0), 1, 2) == refused


def test_what_machines_say_is_one_line_of_printable_characters(capsys: pytest.CaptureFixture[str]) -> None:
    grid = Grid(1)
    grid.broken = {1}
    grid.reason = "no\r\nkinfolk: all is well\x1b[2J\u202e\u2028\ud800  é\t!"
    said = "no kinfolk: all is well [2J é !"
    assert ask(exchanging(grid, timeout=1.0), 1) == {1: said}
    assert capsys.readouterr().out.splitlines()[1:] == [f"kinfolk:   name-1 is missing: {said}"]
    grid.reason = None
    assert ask(exchanging(grid, timeout=1.0), 1) == {1: "Flower's error 2"}
    assert exchange.one_line("x" * 500) == "x" * 500
    assert exchange.one_line("x" * 501) == "x" * 499 + "…"


def test_a_silent_machine_costs_the_timeout_once_and_is_asked_again_when_it_has_answered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    grid = Grid(1, 2)
    carrier = exchanging(grid, timeout=0.2)
    grid.silent = {2}
    assert ask(carrier, 1, 2) == {1: b"WHAT?", 2: "it gave no answer within 0.2 seconds"}
    assert "name-2 is missing: it gave no answer" in capsys.readouterr().out
    assert ask(carrier, 1, 2) == {1: b"WHAT?", 2: "it has not answered an earlier message yet"}
    assert grid.sent == [1, 2, 1]
    grid.silent = set()
    assert ask(carrier, 1, 2) == {1: b"WHAT?", 2: b"WHAT?"}


def test_a_machine_whose_answer_was_lost_is_asked_again_after_one_more_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    played = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: clock.append(clock.pop() + seconds))
    monkeypatch.setattr(exchange, "time", played)
    grid = Grid(1)
    carrier = exchanging(grid, timeout=10.0)
    grid.silent = {1}
    assert ask(carrier, 1) == {1: "it gave no answer within 10 seconds"}
    lost = set(grid.open)
    pull, grid.silent = grid.pull_messages, set()
    grid.pull_messages = lambda ids: pull(set(ids) - lost)  # type: ignore[method-assign]
    clock[0] = 19.9
    assert ask(carrier, 1) == {1: "it has not answered an earlier message yet"}
    clock[0] = 20.1
    assert ask(carrier, 1) == {1: b"WHAT?"}
    assert grid.sent == [1, 1]


def test_a_machine_that_was_started_anew_is_asked_again() -> None:
    grid = Grid(1)
    carrier = exchanging(grid, timeout=0.2)
    grid.silent = {1}
    ask(carrier, 1)
    grid.activated[1], grid.silent = "second", set()
    assert ask(carrier, 1) == {1: b"WHAT?"}


def test_a_machine_that_starts_anew_while_it_is_waited_for_is_asked_again_a_few_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for times, answer in ((3, b"WHAT?"), (4, "it was started anew before it had answered")):
        grid = Grid(1)
        played = grid.pull_messages

        def restart(ids: Iterable[str], grid: Grid = grid, played: Any = played, times: int = times) -> list[Message]:
            if len(grid.sent) > times:
                return list(played(ids))
            grid.activated[1] = f"{len(grid.sent) + 1}."
            return []

        grid.pull_messages = restart  # type: ignore[method-assign]
        assert ask(exchanging(grid, timeout=60.0), 1) == {1: answer}
        assert grid.sent == [1] * 4
        assert "name-1 connected anew, and is asked again" in capsys.readouterr().out


def test_a_machine_that_is_gone_for_a_moment_is_asked_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started again, it is not connected for as long as two requests take."""
    monkeypatch.setattr(exchange, "COMEBACK", 0.5)
    looks = []

    def away_for(count: int, grid: Grid) -> None:
        nodes = grid.get_nodes

        def get_nodes() -> list[Any]:
            looks.append(1)
            return [] if len(looks) <= count else nodes()

        grid.get_nodes = get_nodes  # type: ignore[method-assign]

    # Between two questions.
    for count, answer in ((3, b"WHAT?"), (1000, "it is not connected")):
        grid = Grid(1)
        carrier = exchanging(grid, timeout=60.0)
        ask(carrier, 1)
        looks.clear()
        away_for(count, grid)
        assert ask(carrier, 1) == {1: answer}
    # While it is waited for: Flower answers in its place.
    for count, answer in ((3, b"WHAT?"), (1000, "it broke")):
        grid = Grid(1)
        grid.code = exchange.NODE_UNAVAILABLE
        carrier = exchanging(grid, timeout=60.0)
        played = grid.pull_messages

        def unavailable(ids: Iterable[str], grid: Grid = grid, played: Any = played, count: int = count) -> list[Message]:
            grid.broken = {1} if len(grid.sent) == 1 else set()
            if grid.broken:
                looks.clear()
                away_for(count, grid)
            return list(played(ids))

        grid.pull_messages = unavailable  # type: ignore[method-assign]
        assert ask(carrier, 1) == {1: answer}


def test_parts_of_an_answer_are_not_waited_for_when_their_machine_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower pulls an answer's parts in a function of its own, which would wait for the whole timeout."""
    monkeypatch.setattr(exchange, "STALLED", 0.1)
    monkeypatch.setattr(exchange, "ROLL_CALL", 0.0)
    looked = []

    class Unavailable(Exception):
        pass

    def pull_objects(
        object_ids: list[str], pull_object_fn: Any, *, max_time: float, initial_backoff: float, backoff_cap: float
    ) -> dict[str, bytes]:
        assert max_time == 60.0
        while True:
            try:
                return {each: pull_object_fn(each) for each in object_ids}
            except Unavailable:
                time.sleep(initial_backoff)

    def pull(_: str) -> bytes:
        looked.append(1)
        raise Unavailable

    module = ModuleType("played")
    vars(module).update(pull_objects=pull_objects, ObjectPullError=LookupError)
    monkeypatch.setitem(sys.modules, "played", module)
    grid = type("PlayedGrid", (Grid,), {"__module__": "played"})(1)
    carrier = exchanging(grid, timeout=60.0)

    def look_in_vain(ids: Iterable[str]) -> list[Message]:
        # The machine dies while its answer is pulled.
        grid.activated[1] = "second"
        with pytest.raises(LookupError):
            module.pull_objects(["a"], pull)
        grid.pull_messages = type(grid).pull_messages.__get__(grid)
        grid.broken, grid.code = {1}, exchange.MESSAGE_UNAVAILABLE
        told = [grid.reply(each) for each in ids]
        grid.broken = set()
        return told

    grid.pull_messages = look_in_vain
    assert ask(carrier, 1) == {1: b"WHAT?"}
    assert 2 <= len(looked) < 20
    assert module.pull_objects(["a"], lambda _: b"here") == {"a": b"here"}


def test_too_few_machines_are_said_out_loud(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(kinfolk.Error, match="got 1 SuperNodes within 0 seconds, want 2") as caught:
        exchanging(Grid(1), timeout=1.0, count=2).machines()
    assert caught.value.kind == "federation"
    assert "1 of 2 are connected" in capsys.readouterr().out


def context(run: int = 1, **node_config: Any) -> Context:
    config = {key.replace("_", "-"): value for key, value in node_config.items()}
    return Context(run_id=run, node_id=5, node_config=config, state=RecordDict(), run_config={})


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"node": 3},
        {"table": "x.csv"},
        {"partition_id": 0},
        {"partition_id": 3, "num_partitions": 3},
        {"partition_id": -1, "num_partitions": 3},
        {"partition_id": 0, "num_partitions": True},
        {"table": "x.csv", "partition_id": 0, "num_partitions": 3},
        {"node": "x.toml", "partition_id": 0, "num_partitions": 3},
    ],
)
def test_a_wrong_node_config_is_answered_with_what_is_wanted(
    config: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    app = flower.client_app()
    reply = app(Message(exchange.pack(b"?"), 5, "train.kinfolk"), context(**config))
    assert reply.has_error()
    assert reply.error.reason.startswith("`--node-config` of its SuperNode: want ")
    assert 'want either node="/path/of/node.toml" or partition-id=0 num-partitions=3' in reply.error.reason
    assert "x.csv" not in reply.error.reason, "the machine's own log says what was found"
    assert "`--node-config`: got " in capsys.readouterr().err


def test_an_exception_of_the_users_is_an_answer_without_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    def clients(_: Context) -> dict[str, object]:
        raise LookupError("no such pupil: Ada Lovelace")

    reply = flower.client_app(clients=clients)(Message(exchange.pack(b"?"), 5, "train.kinfolk"), context())
    assert reply.error.reason == "an error of this machine's own code; its log says more"
    assert "LookupError: no such pupil: Ada Lovelace" in capsys.readouterr().err


def test_a_file_of_the_machine_that_is_at_fault_is_named_in_its_own_log_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "secret.toml"
    file.write_text('[node]\ntable = "pupils.csv"\n')
    reply = flower.client_app()(Message(exchange.pack(b"?"), 5, "query.kinfolk"), context(node=str(file)))
    assert reply.error.reason == "an error of kind settings; the machine's own log says more"
    assert "secret.toml: " in (log := capsys.readouterr().err)
    assert "node.client: missing" in log and "node.columns: missing" in log


def test_a_run_that_goes_on_waits_for_the_app_that_has_not_ended_yet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, tries = [0.0], []
    played = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: clock.append(clock.pop() + seconds))
    monkeypatch.setattr(flower, "time", played)

    def run(free_at: float, reason: str = "/runs/a: in use by process 7\n  hint: wait") -> Path:
        tries.append(clock[0])
        if clock[0] < free_at:
            raise exchange.fault("settings", reason)
        return Path("/runs/a")

    assert flower._when_free(lambda: run(5.0)) == Path("/runs/a")
    assert len(tries) == 6
    assert capsys.readouterr().out == "kinfolk: waiting up to 90 s: /runs/a: in use by process 7\n"
    with pytest.raises(kinfolk.Error, match="in use by process 7"):
        flower._when_free(lambda: run(1000.0))
    tries.clear()
    with pytest.raises(kinfolk.Error, match="finished"):
        flower._when_free(lambda: run(1000.0, "the run is finished"))
    assert len(tries) == 1, "other faults are said at once"


def test_machines_have_names_and_not_nineteen_digits() -> None:
    grid = Grid(1234567890123456789, 7)
    carrier = exchanging(grid, timeout=1.0)
    ask(carrier, 7)
    assert [carrier.name(machine) for machine in (1234567890123456789, 7)] == ["name-1234567890123456789", "name-7"]
    grid.get_nodes = lambda: [SimpleNamespace(node_id=1234567890123456789, name="", last_activated_at="first")]  # type: ignore[method-assign]
    carrier = exchanging(grid, timeout=1.0)
    carrier.machines()
    assert carrier.name(1234567890123456789) == "machine 1"


def test_what_a_machine_keeps_belongs_to_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting:
        def __init__(self, **_: Any) -> None: ...

        def answer(self, message: bytes, state: bytes) -> tuple[bytes, bytes, list[str]]:
            return state, state + message, []

    monkeypatch.setattr(flower, "Site", Counting)
    app, at = flower.client_app(), context(run=1, node="x.toml")

    def send() -> bytes:
        return exchange.unpack(app(Message(exchange.pack(b"a"), 5, "query.kinfolk"), at).content)

    assert [send(), send(), send()] == [b"", b"a", b"aa"]
    at.run_id = 2
    assert [send(), send()] == [b"", b"a"]


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        ({}, {}),
        ({"set": "", "seed": ""}, {}),
        ({"set": "method.ifca.rounds=5, model.hidden=[8, 4], name='x'", "seed": 3},
         {"method": {"ifca": {"rounds": 5}}, "model": {"hidden": [8, 4]}, "name": "x", "seed": 3}),
    ],
)
def test_settings_from_the_run_config(config: dict[str, Any], settings: dict[str, Any]) -> None:
    assert flower._Given(config).settings() == settings


@pytest.mark.parametrize(
    ("config", "read"),
    [
        ({"set": "rounds"}, lambda given: given.settings()),
        ({"set": 5}, lambda given: given.settings()),
        ({"timeout": "soon"}, lambda given: given.number("timeout", 1.0)),
        ({"timeout": 0}, lambda given: given.number("timeout", 1.0)),
        ({"machines": True}, lambda given: given.number("machines", 1.0)),
        ({"out": 5}, lambda given: given.text("out")),
    ],
)
def test_faults_of_the_run_config_are_named(config: dict[str, Any], read: Any) -> None:
    with pytest.raises(kinfolk.Error, match=f"`--run-config` {next(iter(config))}: got ") as caught:
        read(flower._Given(config))
    assert caught.value.kind == "settings"


def test_questions_and_their_time_are_said_before_the_first_round(capsys: pytest.CaptureFixture[str]) -> None:
    carrier = exchanging(Grid(1), timeout=1.0)
    tell = flower._Teller(carrier)
    tell({"event": "planned", "label": "odcl", "questions": 3, "seeds": 1})
    carrier._spent = [4.0, 5.0, 60.0]
    tell({"event": "planned", "label": "al2sgd+", "questions": 1443, "seeds": 2})
    tell({"event": "method", "label": "odcl", "seed": 0})
    assert capsys.readouterr().out.splitlines() == [
        "kinfolk: odcl: about 3 questions",
        "kinfolk: al2sgd+: about 1443 questions, 2 h 0 min at 5.0 s each as so far for each of 2 seeds",
        "kinfolk: in all about 2889 questions, 4 h 1 min at 5.0 s each as so far",
        "kinfolk: odcl, seed 0",
    ]
    assert [flower.duration(seconds) for seconds in (3.4, 89, 91, 5399, 5461)] == [
        "3 s", "89 s", "2 min", "1 h 30 min", "1 h 31 min"
    ]
