"""Two workers of one run of this tier: who may run, how their shared clusters are called, and how both are ended.

Everything else of a worker is its own already: `up` chooses a free subnet under a lock, and each file has cluster names
that no other file has.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tests.cluster.command_line import RAISED, STATE, cli

LOCK = Path("/run/nodewright-cluster-tests.lock")
_SHARED = "tres"
_PATIENCE = 120.0  # seconds for the `up` that is under way when the run is interrupted


def shared_name(worker: str) -> str:
    """Of a worker's shared cluster: gw0, and a run without workers, has tres; gw1 has tres2."""
    number = int(worker.removeprefix("gw")) if worker.startswith("gw") else 0
    return f"{_SHARED}{number + 1}" if number else _SHARED


def is_free(lock: Path = LOCK) -> bool:
    """Whether no run holds the lock."""
    with lock.open("a+", encoding="ascii") as file:
        return _claimed(file)


@contextlib.contextmanager
def held(run: str, lock: Path = LOCK) -> Iterator[bool]:
    """Hold the lock, which workers of one run share and no other run gets. True: nobody of the run has it yet.

    Raises BlockingIOError when another run has it.
    """
    with lock.open("a+", encoding="ascii") as file:
        first = _claimed(file)
        if first:
            file.truncate(0)
            file.write(run)
            file.flush()
        _shared(file)
        file.seek(0)
        if file.read() != run:
            raise BlockingIOError(f"{lock} is held by another run")
        yield first


def _claimed(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _shared(file: IO[str], seconds: float = 5) -> None:
    """Another worker has it to itself only for as long as it writes the run's name."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def remove_left_over(workers: int) -> None:
    """Shared clusters of more workers than this run has, left by a run that was killed. Those of this run are left to
    its workers: another one may be raising its own already."""
    own = {shared_name(f"gw{number}") for number in range(workers)}
    for folder in STATE.glob(f"{_SHARED}[0-9]"):
        if folder.name not in own:
            cli("down", "--name", folder.name, "--plain")


def take_down_raised(seconds: float = _PATIENCE) -> list[str]:
    """Every cluster that workers have raised and not taken down: an interrupted worker is killed after ten seconds.

    Their names are the files of the folder that $NODEWRIGHT_TEST_RAISED names.
    """
    names = sorted(name for name in os.listdir(os.environ[RAISED]) if (STATE / name).exists())
    deadline = time.monotonic() + seconds
    for name in names:
        while cli("down", "--name", name, "--plain", check=False).returncode and time.monotonic() < deadline:
            time.sleep(1)
    return names
