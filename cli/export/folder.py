"""Writes the parts of a bug report into a folder, side by side, within bounds of size and time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cli.export.parts import Part
from nodelib.errors import Invalid, NodewrightError, Temporary
from nodelib.text import one_line, visible

SECONDS = 120.0  # for all parts together
_MOST = 4 << 20  # characters of a part
_AT_ONCE = 4
_SAID_EVERY = 20  # files: where there is no terminal, each time is a line


@dataclass(frozen=True, slots=True)
class Written:
    """One file that was written. `problem`: why the part could not be read, "" if it could."""

    path: str
    seconds: float
    problem: str
    size: int = 0


def claim(folder: Path) -> None:
    """Make the folder for its owner alone. Raises Invalid unless it is new or empty, ours, and in one that exists."""
    step = "export logs"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with _opened(folder) as here:
            owner, empty = os.fstat(here).st_uid, not os.listdir(here)
            if owner == os.geteuid() and empty:
                os.fchmod(here, 0o700)
    except FileNotFoundError as error:
        raise Invalid(
            "no such directory",
            obj=str(folder.parent),
            step=step,
            action=f"Run `mkdir -p {shlex.quote(str(folder.parent))}` first.",
        ) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise Invalid("is not a directory", obj=str(folder), step=step, action="Name a new directory.") from error
    if owner != os.geteuid():
        raise Invalid("belongs to another user", obj=str(folder), step=step, action="Name a new directory.")
    if not empty:
        raise Invalid("is not empty", obj=str(folder), step=step, action="Name a new or an empty directory.")


@contextlib.contextmanager
def _opened(folder: Path | str, at: int | None = None) -> Iterator[int]:
    """The directory itself, which nobody can replace by a link meanwhile. Raises OSError."""
    try:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise NotADirectoryError(errno.ENOTDIR, "is a link", str(folder)) from error
    try:
        yield here
    finally:
        os.close(here)


async def write(
    folder: Path, parts: Iterable[Part], *, seconds: float = SECONDS, say: Callable[[str], None] = lambda text: None
) -> list[Written]:
    """Write every part; one that cannot be read becomes a file NAME.failed that says why. `say` hears how far it is."""
    turn = asyncio.Semaphore(_AT_ONCE)
    end = asyncio.get_running_loop().time() + seconds
    every, done = list(parts), 0

    async def counted(part: Part) -> Written:
        nonlocal done
        written = await _part(here, part, turn, end, seconds)
        done += 1
        if done % _SAID_EVERY == 0 or done == len(every):
            say(f"{done} of {len(every)} files")
        return written

    with _opened(folder) as here:
        return await asyncio.gather(*map(counted, every))


async def _part(here: int, part: Part, turn: asyncio.Semaphore, end: float, seconds: float) -> Written:
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
    except Exception as error:  # whatever one part meets, the others are written
        problem = f"{type(error).__name__}: {error}"
    path = part.path if not problem else f"{part.path}.failed"
    size = await asyncio.to_thread(_save, here, path, problem or text)
    return Written(path, time.monotonic() - began, problem, size)


def save(folder: Path, name: str, text: str) -> int:
    """Write a file of the folder, which must not exist. Returns its size. Raises OSError."""
    with _opened(folder) as here:
        return _save(here, name, text)


def _save(here: int, path: str, text: str) -> int:
    first, slash, rest = path.partition("/")
    if slash:
        with contextlib.suppress(FileExistsError):
            os.mkdir(first, 0o700, dir_fd=here)
        with _opened(first, here) as inner:
            return _save(inner, rest, text)
    shown = visible(text[-_MOST:])
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=here)
    with open(number, "w", encoding="utf-8", errors="replace") as file:
        file.write(shown if shown.endswith("\n") else f"{shown}\n")
        file.flush()
        return os.fstat(number).st_size


def contents(written: Iterable[Written], note: str = "") -> str:
    """The page that says what is in the folder."""
    lines = [
        "Written by `nodewright export logs`. Secrets, tokens and private keys are left out, as far as they can be",
        "recognized: look through these files before you publish them.",
        *([note] if note else []),
        "",
    ]
    for one in sorted(written, key=lambda one: one.path):
        lines.append(f"{one.seconds:6.1f} s  {one.path}{f': {one_line(one.problem, 300)}' if one.problem else ''}")
    return "\n".join(lines) + "\n"


def refuse_nothing(written: list[Written]) -> None:
    """Raises Temporary if not one part could be read."""
    if all(one.problem for one in written):
        raise Temporary(
            "not one part could be read", step="export logs", action="The files in the folder say why, one by one."
        )
