"""Messages to the machines of a Flower grid, and who is there to answer them."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from statistics import median
from typing import NamedTuple

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from .._kinfolk import Error

# Flower pushes each record as an object of its own, and an object that is there already is not pushed again: what is
# the same for all machines travels to the SuperLink once, and no request takes long.
PART_BYTES = 4 << 20
# Seconds between two looks for answers: at least these, and at most.
LOOK, SELDOM_LOOK = 0.05, 2.0
# Seconds between two looks at who is connected, while answers are awaited.
ROLL_CALL = 1.0
# Of a machine's text, so many characters are shown and kept.
TEXT_LENGTH = 500

Answer = tuple[int, bytes | None, str | None]


class Owed(NamedTuple):
    """A message that a machine has not answered."""

    machine: int
    activated: str
    forgiven: float
    """When the machine is asked again all the same, on the monotonic clock."""


class Exchange:
    """Carries messages to machines and their answers back.

    It begins when `count` machines are connected, for which it waits `wait` seconds at most. A machine that gives no
    answer within `timeout` seconds is missing. Every question is said, or with `talks` false only those that somebody did
    not answer.
    """

    def __init__(
        self, grid: Grid, *, count: float, wait: float, timeout: float, talks: bool = True
    ) -> None:
        self._grid = grid
        self._count = count
        self._wait = wait
        self._timeout = timeout
        self._talks = talks
        self._names: dict[int, str] = {}
        self._numbers: dict[int, int] = {}
        # By the id of the message. Whoever owes an answer is not asked again for one more timeout: a machine works on one
        # message at a time, and one that hangs would cost the whole timeout at every question. But answers get lost, too.
        self._owed: dict[str, Owed] = {}
        self._spent: list[float] = []
        look_again_soon(grid, timeout)

    def machines(self) -> list[int]:
        """The machines that are connected: enough at first, and later those that are left."""
        deadline = time.monotonic() + self._wait
        seen = -1
        while len(connected := self._connected()) < self._count:
            if len(connected) != seen:
                seen = len(connected)
                say(f"waiting up to {self._wait:g} s for machines: {seen} of {self._count:g} are connected")
            if time.monotonic() >= deadline:
                raise fault(
                    "federation",
                    f"machines: got {seen} SuperNodes within {self._wait:g} seconds, want {self._count:g}; start the "
                    "others, or say `machines` or `wait` in `--run-config`",
                )
            time.sleep(1.0)
        self._count = 0
        say(f"{len(connected)} machines are connected")
        return sorted(connected)

    def __call__(self, messages: list[tuple[int, bytes]], kind: str) -> list[Answer]:
        """Sends each machine its message and collects the answers; an entry without one says why there is none."""
        began = time.monotonic()
        connected = self._connected()
        self._settle(connected)
        busy = {owed.machine for owed in self._owed.values()}
        answers: list[Answer] = []
        letters: list[Message] = []
        for machine, body in messages:
            if machine not in connected:
                answers.append((machine, None, "it is not connected"))
            elif machine in busy:
                answers.append((machine, None, "it has not answered an earlier message yet"))
            else:
                letters.append(Message(pack(body), machine, f"{kind}.kinfolk"))
        answers += self._deliver(letters, connected, began + self._timeout)
        missing = [(machine, why) for machine, reply, why in answers if reply is None]
        seconds = time.monotonic() - began
        self._spent.append(seconds)
        if self._talks or missing:
            say(f"{kind}: {len(answers) - len(missing)} of {len(messages)} machines answered, {seconds:.1f} s")
        for machine, why in missing:
            say(f"  {self.name(machine)} is missing: {why}")
        return sorted(answers, key=lambda answer: answer[0])

    def _deliver(self, letters: list[Message], connected: dict[int, str], deadline: float) -> Iterable[Answer]:
        if not letters:
            return
        waiting: dict[str, Owed] = {}
        pushed = list(self._grid.push_messages(letters))
        # Flower gives no ids at all when the request was too large.
        message_ids = pushed if len(pushed) == len(letters) else [""] * len(letters)
        for letter, message_id in zip(letters, message_ids, strict=True):
            machine = letter.metadata.dst_node_id
            if message_id:
                waiting[message_id] = Owed(machine, connected[machine], deadline + self._timeout)
            else:
                yield machine, None, "the SuperLink did not accept the message for it"
        began = called = time.monotonic()
        while waiting:
            # Looking often costs the SuperLink work, looking seldom costs time: at most a twentieth of the wait.
            now = time.monotonic()
            time.sleep(max(min(max((now - began) / 20, LOOK), SELDOM_LOOK, deadline - now), 0.0))
            for reply in self._grid.pull_messages(list(waiting)):
                owed = waiting.pop(reply.metadata.reply_to_message_id, None)
                if owed is not None:
                    yield self._read(owed.machine, reply)
            now = time.monotonic()
            if waiting and now >= called + ROLL_CALL:
                called = now
                for message_id in forgotten(waiting, self._connected()):
                    machine = waiting.pop(message_id).machine
                    yield machine, None, "it was started anew before it had answered"
            if now >= deadline:
                break
        self._owed |= waiting
        for machine, *_ in waiting.values():
            yield machine, None, f"it gave no answer within {self._timeout:g} seconds"

    def _read(self, machine: int, reply: Message) -> Answer:
        """The answer in a reply. Whatever a machine sends, it costs nobody else the run."""
        if reply.has_error():
            reason = one_line(reply.error.reason or "") or f"Flower's error {reply.error.code}"
            return machine, None, reason
        try:
            return machine, unpack(reply.content), None
        except (Error, ValueError):
            return machine, None, "its answer cannot be read"

    def _settle(self, connected: dict[int, str]) -> None:
        """Forgets what is owed by machines that have answered late or were started anew, and what is owed for long."""
        for message_id in forgotten(self._owed, connected):
            del self._owed[message_id]
        if self._owed:
            for reply in self._grid.pull_messages(list(self._owed)):
                self._owed.pop(reply.metadata.reply_to_message_id, None)
        now = time.monotonic()
        self._owed = {message_id: owed for message_id, owed in self._owed.items() if now < owed.forgiven}

    def _connected(self) -> dict[int, str]:
        """Who is connected, and since when. A SuperNode that dies without a word counts as connected for a minute."""
        nodes = list(self._grid.get_nodes())
        for node in nodes:
            self._numbers.setdefault(node.node_id, len(self._numbers) + 1)
            self._names |= {node.node_id: node.name} if node.name else {}
        return {node.node_id: node.last_activated_at for node in nodes}

    def usual_seconds(self) -> float | None:
        """What a question takes, as measured so far: the median, for one may have waited for a machine that is gone."""
        return median(self._spent) if self._spent else None

    def name(self, machine: int) -> str:
        """The name under which it was registered, else a number: Flower's own have nineteen digits."""
        return self._names.get(machine) or f"machine {self._numbers.setdefault(machine, len(self._numbers) + 1)}"


def look_again_soon(grid: Grid, timeout: float) -> None:
    """Has Flower look again at once for the objects of an answer that is still on its way.

    They come after the answer's head, and who asks in between would wait a second for them: longer than a question takes.
    """
    module = sys.modules.get(type(grid).__module__)
    pull = getattr(module, "pull_objects", None)
    wanted = {"initial_backoff": LOOK, "backoff_cap": SELDOM_LOOK, "max_time": timeout}
    if module is not None and inspect.isfunction(pull) and wanted.keys() <= inspect.signature(pull).parameters.keys():
        module.pull_objects = partial(pull, **wanted)  # type: ignore[attr-defined]


def forgotten(owed: Mapping[str, Owed], connected: Mapping[int, str]) -> list[str]:
    """Messages to machines that were activated again since, and know nothing of them."""
    return [
        message_id for message_id, (machine, since, _) in owed.items() if connected.get(machine, since) != since
    ]


def pack(body: bytes) -> RecordDict:
    """The content of a message."""
    parts = (body[start : start + PART_BYTES] for start in range(0, len(body) or 1, PART_BYTES))
    return RecordDict({f"{number:06}": ConfigRecord({"bytes": part}) for number, part in enumerate(parts)})


def unpack(content: RecordDict) -> bytes:
    """What was packed."""
    found = [record.get("bytes") for _, record in sorted(content.config_records.items())]
    parts = [part for part in found if isinstance(part, bytes)]
    if not parts or len(parts) < len(found):
        raise fault("federation", 'a message: got other records than Kinfolk sends, want records with "bytes"')
    return b"".join(parts)


def one_line(text: str) -> str:
    """Text of a machine's as it may be shown and kept: it forges no line, steers no terminal and fills no disk."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    line = " ".join(printable.split())
    return line if len(line) <= TEXT_LENGTH else f"{line[: TEXT_LENGTH - 1]}…"


def fault(kind: str, message: str) -> Error:
    """An exception as the compiled part raises them."""
    error = Error(message)
    error.kind = kind
    error.told = message
    return error


def say(line: str) -> None:
    """Flower streams what the server's app prints."""
    print(f"kinfolk: {line}", flush=True)
