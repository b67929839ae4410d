"""Messages to the machines of a Flower grid, and who is there to answer them."""

from __future__ import annotations

import inspect
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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
# Seconds in which a machine that has just gone may come back: one that is started again is gone for a moment.
COMEBACK = 3.0
# How often a machine that comes back is asked again: a question that ends it would do so for ever.
MOST_REPEATS = 3
# Seconds without a part of an answer after which one looks whether its machine is still there.
STALLED = 2.0
# Flower's numbers for an answer of which parts did not come, and for a machine that is not connected any more.
MESSAGE_UNAVAILABLE, NODE_UNAVAILABLE = 3, 5
# Of a machine's text, so many characters are shown and kept.
TEXT_LENGTH = 500

Answer = tuple[int, bytes | None, str | None]


class Owed(NamedTuple):
    """A message that a machine has not answered."""

    machine: int
    activated: str
    forgiven: float
    """When the machine is asked again all the same, on the monotonic clock."""


class Gone(NamedTuple):
    """A machine that went away before it had answered."""

    why: str
    until: float
    """Until when it may come back and be asked again, on the monotonic clock."""


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
        # Who was connected at the last question.
        self._before: set[int] = set()
        # Who is waited for, and when it was last looked whether they are there.
        self._waiting: dict[str, Owed] = {}
        self._called = 0.0
        self._spent: list[float] = []
        look_again_soon(grid, timeout, self._lost_somebody)

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
        gone: dict[int, Gone] = {}
        for machine, body in messages:
            if machine in busy:
                answers.append((machine, None, "it has not answered an earlier message yet"))
            elif machine not in connected and machine not in self._before:
                answers.append((machine, None, "it is not connected"))
            else:
                letters.append(Message(pack(body), machine, f"{kind}.kinfolk"))
                if machine not in connected:
                    gone[machine] = Gone("it is not connected", began + COMEBACK)
        self._before = set(connected)
        answers += self._deliver(letters, connected, gone, began + self._timeout)
        missing = [(machine, why) for machine, reply, why in answers if reply is None]
        seconds = time.monotonic() - began
        self._spent.append(seconds)
        if self._talks or missing:
            say(f"{kind}: {len(answers) - len(missing)} of {len(messages)} machines answered, {seconds:.1f} s")
        for machine, why in missing:
            say(f"  {self.name(machine)} is missing: {why}")
        return sorted(answers, key=lambda answer: answer[0])

    def _deliver(
        self, letters: list[Message], connected: dict[int, str], gone: dict[int, Gone], deadline: float
    ) -> Iterable[Answer]:
        """Sends letters and waits for the answers. A machine that is started anew or connects anew meanwhile is asked again."""
        of_machine = {letter.metadata.dst_node_id: letter for letter in letters}
        waiting = self._waiting = {}
        letters = [letter for machine, letter in of_machine.items() if machine not in gone]
        yield from self._push(letters, connected, deadline, waiting)
        repeats: Counter[int] = Counter()
        began = self._called = time.monotonic()
        while waiting or gone:
            # Looking often costs the SuperLink work, looking seldom costs time: at most a twentieth of the wait.
            now = time.monotonic()
            time.sleep(max(min(max((now - began) / 20, LOOK), SELDOM_LOOK, deadline - now), 0.0))
            for reply in self._grid.pull_messages(list(waiting)) if waiting else ():
                owed = waiting.pop(reply.metadata.reply_to_message_id, None)
                if owed is None:
                    continue
                answer = self._read(owed.machine, reply)
                is_cut_off = reply.has_error() and reply.error.code in (MESSAGE_UNAVAILABLE, NODE_UNAVAILABLE)
                if is_cut_off and repeats[owed.machine] < MOST_REPEATS:
                    gone[owed.machine] = Gone(answer[2] or "", time.monotonic() + COMEBACK)
                else:
                    yield answer
            now = time.monotonic()
            if gone or now >= self._called + ROLL_CALL:
                self._called, connected = now, self._connected()
                for message_id in forgotten(waiting, connected):
                    machine = waiting.pop(message_id).machine
                    gone[machine] = Gone("it was started anew before it had answered", now)
                again = [machine for machine in gone if machine in connected and repeats[machine] < MOST_REPEATS]
                lost = [machine for machine, (_, until) in gone.items() if machine not in again and now >= until]
                yield from ((machine, None, gone.pop(machine).why) for machine in lost)
                for machine in again:
                    del gone[machine]
                    repeats[machine] += 1
                    say(f"  {self.name(machine)} connected anew, and is asked again")
                letters = [of_machine[machine] for machine in again]
                copies = [Message(it.content, it.metadata.dst_node_id, it.metadata.message_type) for it in letters]
                yield from self._push(copies, connected, deadline, waiting)
            if now >= deadline:
                break
        self._owed |= waiting
        yield from ((machine, None, why) for machine, (why, _) in gone.items())
        for machine, *_ in waiting.values():
            yield machine, None, f"it gave no answer within {self._timeout:g} seconds"

    def _push(
        self, letters: list[Message], connected: Mapping[int, str], deadline: float, waiting: dict[str, Owed]
    ) -> Iterable[Answer]:
        """Sends letters, and notes who owes an answer. Gives those that were not accepted."""
        if not letters:
            return
        pushed = list(self._grid.push_messages(letters))
        # Flower gives no ids at all when the request was too large.
        message_ids = pushed if len(pushed) == len(letters) else [""] * len(letters)
        for letter, message_id in zip(letters, message_ids, strict=True):
            machine = letter.metadata.dst_node_id
            if message_id:
                waiting[message_id] = Owed(machine, connected[machine], deadline + self._timeout)
            else:
                yield machine, None, "the SuperLink did not accept the message for it"

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

    def _lost_somebody(self) -> bool:
        """Whether a machine that is waited for is gone, or was started anew. It is looked every second, by whoever asks first."""
        if (now := time.monotonic()) < self._called + ROLL_CALL:
            return False
        self._called = now
        connected = self._connected()
        return any(connected.get(owed.machine) != owed.activated for owed in list(self._waiting.values()))

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


def look_again_soon(grid: Grid, timeout: float, lost_somebody: Callable[[], bool]) -> None:
    """Has Flower look again at once for the objects of an answer that is still on its way.

    They come after the answer's head, and who asks in between would wait a second for them: longer than a question takes. Those of a
    machine that died in between never come: Flower would wait for them for as long as a question may take.
    """
    module = sys.modules.get(type(grid).__module__)
    pull, broken = (getattr(module, name, None) for name in ("pull_objects", "ObjectPullError"))
    wanted = {"initial_backoff": LOOK, "backoff_cap": SELDOM_LOOK, "max_time": timeout}
    if module is None or broken is None or not inspect.isfunction(pull):
        return
    if not wanted.keys() <= inspect.signature(pull).parameters.keys():
        return

    def pull_objects(object_ids: list[str], pull_object_fn: Callable[[str], bytes]) -> dict[str, bytes]:
        arrived = time.monotonic()

        def pull_one(object_id: str) -> bytes:
            nonlocal arrived
            try:
                content = pull_object_fn(object_id)
            except Exception:
                if time.monotonic() >= arrived + STALLED and lost_somebody():
                    raise broken(object_id, "its machine is gone") from None
                raise
            arrived = time.monotonic()
            return content

        found: dict[str, bytes] = pull(object_ids, pull_one, **wanted)
        return found

    module.pull_objects = pull_objects  # type: ignore[attr-defined]


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
