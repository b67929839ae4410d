"""Progress of a run, on one line: in a terminal or in a notebook, wherever somebody can see it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import Any, TextIO

Event = dict[str, Any]
Listener = Callable[[Event], object]

WIDTH = 30
"""Characters of a bar."""
PAUSE = 0.1
"""Least seconds between two drawings."""


@contextmanager
def find_display(progress: bool | Listener | None) -> Iterator[Listener | None]:
    """Whom to tell: a function that was given, a notebook, a terminal, or nobody."""
    if callable(progress):
        yield progress
        return
    board = None if progress is False else _notebook() or _terminal()
    try:
        yield Line(board.show, board.say) if board else None
    finally:
        if board:
            board.clear()


class Line:
    """Says in one line where a run is."""

    def __init__(self, show: Callable[[str], None], say: Callable[[str], None]) -> None:
        self._show = show
        self._say = say
        self._drawn = 0.0
        self._metric = ""

    def __call__(self, event: Event) -> None:
        getattr(self, f"_{event['event']}")(event)

    def _doing(self, event: Event) -> None:
        self._show(event["what"])

    def _planned(self, event: Event) -> None:
        """How many questions a method takes matters where each takes seconds: on other machines."""

    def _method(self, event: Event) -> None:
        self._title = f"{event['label']} (seed {event['seed']})"
        self._rounds, self._from, self._began = event["rounds"], event["from"], time.monotonic()
        self._metric = ""
        self._draw(event["from"], "")

    def _round(self, event: Event) -> None:
        if event["metric"] is not None:
            self._metric = f", metric {event['metric']:.4f}"
        if event["loss"] is not None and time.monotonic() - self._drawn >= PAUSE:
            self._draw(event["round"], f"loss {event['loss']:.4f}{self._metric}")

    def _finished(self, event: Event) -> None:
        if event["reason"] is not None:
            self._say(f"{event['label']} (seed {event['seed']}): {event['status']}: {event['reason']}")

    def _draw(self, done: int, message: str) -> None:
        self._drawn = time.monotonic()
        full = WIDTH * done // max(self._rounds, 1)
        bar = "█" * full + "░" * (WIDTH - full)
        rounds = done - self._from
        left = (self._drawn - self._began) / rounds * (self._rounds - done) if rounds else 0
        after = f", {left:.0f} s left" if rounds else ""
        self._show(f"{self._title} {bar} {done}/{self._rounds} rounds{after}  {message}")


class Terminal:
    """One line of a terminal, drawn over again and again."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, text: str) -> None:
        """Draws the line."""
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r\x1b[K{text[:width]}")
        self._stream.flush()

    def say(self, text: str) -> None:
        """Writes something that stays."""
        self._stream.write(f"\r\x1b[K{text}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Leaves no line behind."""
        self._stream.write("\r\x1b[K")
        self._stream.flush()


class Notebook:
    """A cell's output, replaced again and again."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._said: list[str] = []
        self._handle = display(Lines([]), display_id=True)

    def show(self, text: str) -> None:
        """Draws the line below what was said."""
        self._handle.update(Lines([*self._said, text]))

    def say(self, text: str) -> None:
        """Writes something that stays."""
        self._said.append(text)
        self.clear()

    def clear(self) -> None:
        """Leaves only what was said."""
        self._handle.update(Lines(self._said))


class Lines:
    """Lines of text in a notebook."""

    def __init__(self, lines: list[str]) -> None:
        self._text = "\n".join(lines)

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self._text)}</pre>"


def _notebook() -> Notebook | None:
    """The notebook this runs in. Whoever runs in one has IPython imported already."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive else None
    # Some notebooks have a shell of their own, made from Jupyter's.
    if "ZMQInteractiveShell" not in {kind.__name__ for kind in type(shell).__mro__}:
        return None
    return Notebook(import_module("IPython.display").display)


def _terminal() -> Terminal | None:
    stream = sys.stderr
    return Terminal(stream) if stream is not None and stream.isatty() else None
