"""How long work reports what it is doing; the command line shows it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

Say = Callable[[str], None]


class Progress(Protocol):
    """Steps may run side by side; each is shown with its time, as failed when its block raises, as interrupted when it
    is cancelled."""

    def step(self, title: str) -> AbstractContextManager[Say]:
        """A step that lasts as long as the block; call the value to add a detail to it."""
        ...


class Unshown:
    """A Progress for work that nobody wants to watch."""

    def step(self, title: str) -> AbstractContextManager[Say]:
        return nullcontext(lambda text: None)


class Named:
    """A Progress for one of several works that are shown together: its steps have its name in front."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress, self._name = progress, name

    def step(self, title: str) -> AbstractContextManager[Say]:
        return self._progress.step(f"{self._name}: {title}")
