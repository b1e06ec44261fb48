"""Writes the parts of a bug report into a folder, side by side, within bounds of size and time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cli.export.parts import Part
from nodelib.errors import Invalid, NodewrightError, Temporary
from nodelib.text import visible

SECONDS = 120.0  # for all parts together
_MOST = 4 << 20  # characters of a part
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Written:
    """One file that was written. `problem`: why the part could not be read, "" if it could."""

    path: str
    seconds: float
    problem: str


def claim(folder: Path) -> None:
    """Make the folder for its owner alone. Raises Invalid unless it is new or empty, in a folder that exists."""
    step = "export logs"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        empty = not any(folder.iterdir())
    except FileNotFoundError as error:
        raise Invalid(
            "no such directory", obj=str(folder.parent), step=step, action=f"Run `mkdir -p {folder.parent}` first."
        ) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise Invalid("is not a directory", obj=str(folder), step=step, action="Name a new directory.") from error
    if not empty:
        raise Invalid("is not empty", obj=str(folder), step=step, action="Name a new or an empty directory.")


async def write(folder: Path, parts: Iterable[Part], *, seconds: float = SECONDS) -> list[Written]:
    """Write every part; one that cannot be read becomes a file NAME.failed that says why."""
    turn = asyncio.Semaphore(_AT_ONCE)
    end = asyncio.get_running_loop().time() + seconds
    return await asyncio.gather(*(_part(folder, part, turn, end, seconds) for part in parts))


async def _part(folder: Path, part: Part, turn: asyncio.Semaphore, end: float, seconds: float) -> Written:
    text = problem = ""
    began = time.monotonic()
    try:
        async with turn, asyncio.timeout_at(end):
            began = time.monotonic()
            text = await part.read()
    except TimeoutError:
        problem = f"not finished when the {seconds:g} s for the whole folder were over"
    except NodewrightError as error:
        problem = str(error)
    except (OSError, ValueError, RuntimeError) as error:
        problem = f"{type(error).__name__}: {error}"
    path = part.path if not problem else f"{part.path}.failed"
    await asyncio.to_thread(_save, folder / path, problem or text)
    return Written(path, time.monotonic() - began, problem)


def _save(path: Path, text: str) -> None:
    _make_private(path.parent)
    shown = visible(text[-_MOST:])
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(number, "w", encoding="utf-8", errors="replace") as file:
        file.write(shown if shown.endswith("\n") else f"{shown}\n")


def _make_private(folder: Path) -> None:
    """mkdir(parents=True) would give the mode to the last directory alone."""
    for one in (*reversed(folder.parents), folder):
        one.mkdir(mode=0o700, exist_ok=True)


def contents(written: Iterable[Written]) -> str:
    """The page that says what is in the folder."""
    lines = [
        "Written by `nodewright export logs`. Secrets, tokens and private keys are left out, as far as they can be",
        "recognized: look through these files before you publish them.",
        "",
    ]
    for one in sorted(written, key=lambda one: one.path):
        lines.append(f"{one.seconds:6.1f} s  {one.path}{f': {one.problem.splitlines()[0]}' if one.problem else ''}")
    return "\n".join(lines) + "\n"


def refuse_nothing(written: list[Written]) -> None:
    """Raises Temporary if not one part could be read."""
    if all(one.problem for one in written):
        raise Temporary(
            "not one part could be read", step="export logs", action="The files in the folder say why, one by one."
        )
