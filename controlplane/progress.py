"""How work tells what it does; the CLI shows it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

Say = Callable[[str], None]


class Progress(Protocol):
    """Steps run side by side; each is shown with its time, and marked failed when its block raises."""

    def step(self, title: str) -> AbstractContextManager[Say]:
        """A step that lasts as long as the block; the value tells a detail of it."""
        ...
