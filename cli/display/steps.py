"""Shows the steps of long work: as a live table on a terminal, as plain lines anywhere else.

Steps run in parallel, so a plain line is printed when a step ends, and when a long step has something new to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from cli.display.quiet import is_quiet
from nodelib.text import one_line

_LONGEST = 2000  # bytes of a title or a detail
Say = Callable[[str], None]


@dataclass
class Step:
    """One step; it is running while `ended` is 0. Times are monotonic seconds."""

    title: str
    started: float
    ended: float = 0.0
    failed: bool = False
    interrupted: bool = False
    detail: str = ""

    def seconds(self, now: float) -> float:
        return (self.ended or now) - self.started


class Display:
    """Implements controlplane.progress.Progress. Use it as a context manager around the work."""

    def __init__(self, *, plain: bool | None = None, out: Any = None) -> None:
        self.out = out or sys.stderr
        self.plain = (not self.out.isatty()) if plain is None else plain
        self.quiet = is_quiet()
        self.began = time.monotonic()
        self.steps: list[Step] = []
        self._lock = threading.Lock()
        self._live: Any = None

    def __enter__(self) -> Display:
        if not self.plain and not self.quiet:
            from rich.live import Live

            from cli.display.terminal import new_console

            self._live = Live(
                get_renderable=self._table, console=new_console(self.out), refresh_per_second=8, transient=False
            )
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
            self._live = None

    @property
    def elapsed(self) -> float:
        """Seconds since the display was created."""
        return time.monotonic() - self.began

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Say]:
        """A step that lasts as long as the block."""
        title = one_line(title, _LONGEST)
        step = Step(title, time.monotonic())
        with self._lock:
            self.steps.append(step)

        shown = ""

        def say(text: str) -> None:
            nonlocal shown
            text = one_line(text, _LONGEST)
            step.detail = text
            # A long step reports what it is doing; the detail of a short one is on its last line anyway.
            if self.plain and text != shown and time.monotonic() - step.started > 3:
                shown = text
                self._print(f"  {title}: {text}")

        try:
            yield say
        except (KeyboardInterrupt, asyncio.CancelledError):  # by Ctrl-C, or as a step beside it failed
            step.interrupted = True
            raise
        except BaseException:
            step.failed = True
            raise
        finally:
            step.ended = time.monotonic()
            if self.plain:
                self._print(self._line(step))

    def _line(self, step: Step) -> str:
        mark = "FAILED" if step.failed else "interrupted" if step.interrupted else "ok"
        detail = f" ({step.detail})" if step.detail else ""
        return f"{step.ended - self.began:7.2f} s  {mark:6} {step.title}{detail}  [{step.seconds(step.ended):.2f} s]"

    def _print(self, text: str) -> None:
        if self.quiet:
            return
        with self._lock:
            print(text, file=self.out, flush=True)

    def _table(self) -> Any:
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        now = time.monotonic()
        with self._lock:
            for step in self.steps:
                mark: Any = Spinner("dots")
                if step.ended:
                    mark = Text("✗", "red") if step.failed else Text("✓", "green")
                detail = step.detail
                if step.interrupted:
                    mark, detail = Text("-", "yellow"), f"interrupted ({detail})" if detail else "interrupted"
                table.add_row(mark, step.title, f"{step.seconds(now):6.2f} s", Text(detail, "dim"))
        return table
