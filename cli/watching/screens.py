"""Three ways to show frames: a terminal redrawn in place, lines for a pipe or a file, JSON documents for programs."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from cli.display.terminal import new_console
from cli.watching.changes import Frame, differs, lines
from cli.watching.follow import Screen
from nodelib.text import visible

_ENDS = "Ctrl-C ends it."


@contextlib.contextmanager
def screen(title: str, *, as_json: bool, plain: bool = False) -> Iterator[Screen]:
    """The way that fits standard output; with `plain` also a terminal gets lines. The last state stays on a terminal
    when the block ends."""
    console = new_console()
    if as_json:
        yield Documents()
    elif plain or not console.is_terminal or console.is_dumb_terminal:
        yield Lines()
    else:
        with Live(
            console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        ) as live:
            shown = Terminal(live, title)
            yield shown
        if shown.frame is not None:
            _leave(console, shown.frame)


class Documents:
    """One JSON document a line (NDJSON), whenever it differs from the one before."""

    def __init__(self) -> None:
        self._before: Frame | None = None

    def show(self, frame: Frame) -> None:
        if differs(self._before, frame):
            print(json.dumps(frame.document), flush=True)
        self._before = frame

    def tick(self) -> None:
        pass


class Lines:
    """First everything, then what changes, each change with the time."""

    def __init__(self) -> None:
        self._before: Frame | None = None

    def show(self, frame: Frame) -> None:
        for line in lines(self._before, frame, time.strftime("%H:%M:%S")):
            print(line)
        sys.stdout.flush()
        self._before = frame

    def tick(self) -> None:
        pass


class Terminal:
    """The newest frame on the terminal's second screen, cut to its size."""

    def __init__(self, live: Live, title: str) -> None:
        self.frame: Frame | None = None
        self._live, self._title = live, title

    def show(self, frame: Frame) -> None:
        self.frame = frame
        self.tick()

    def tick(self) -> None:
        if self.frame is not None:
            now = time.time()
            clock = time.strftime("%H:%M:%S", time.localtime(now))
            head = Text(visible(f"{self._title} at {clock}. {_ENDS}"), style="dim")
            self._live.update(Cut((head, *self.frame.drawn(now))), refresh=True)


@dataclass(frozen=True, slots=True)
class Cut:
    """Renderables one below the other, as many lines as the terminal has; the last one says how much is left out."""

    parts: tuple[object, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room, shown = max(1, options.max_height), list[list[Segment]]()
        whole = options.update(height=None)
        for at, part in enumerate(self.parts):
            found = console.render_lines(_printable(part), whole, pad=False)
            if len(shown) + len(found) > room or (len(shown) + len(found) == room and at + 1 < len(self.parts)):
                shown += found
                del shown[room - 1 :]
                rest = "… more below: a larger terminal, a name or -n shows it"
                shown += console.render_lines(Text(rest, "dim", no_wrap=True, overflow="ellipsis"), whole, pad=False)
                break
            shown += found
        for at, line in enumerate(shown[:room]):
            yield from line
            if at + 1 < min(room, len(shown)):
                yield Segment.line()


def _leave(console: Console, frame: Frame) -> None:
    for part in frame.drawn(time.time()):
        console.print(_printable(part), overflow="fold")


def _printable(part: object) -> RenderableType:
    return Text(visible(part), overflow="fold") if isinstance(part, str) else cast(RenderableType, part)
