"""Copies the tree, changes the copy, runs its tests, and changes it back."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mutations.model import Mutation, Verdict

PROJECT = Path(__file__).resolve().parents[2]
_LONGEST = 900.0  # seconds for the tests of one mutation: a feature that is gone may make them wait
_NICE = "5"
_FAILED, _PASSED = 1, 0  # pytest's exit statuses
_NAME = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?)(?:\[.*)?(?: - .*)?$", re.MULTILINE)


def verdicts(mutations: Iterable[Mutation]) -> Iterator[Verdict]:
    """One after the other. A failure says nothing where the same tests fail with the feature, too."""
    with _copy() as tree:
        sound: dict[str, bool] = {}
        for one in mutations:
            found, failed = _verdict(tree, one)
            if failed and failed not in sound:
                sound[failed] = _pytest(tree, failed)[0] == _PASSED
            yield Verdict(one, problem=f"{failed} fails with the feature") if failed and not sound[failed] else found


def _verdict(tree: Path, one: Mutation) -> tuple[Verdict, str]:
    """What the tests say, and which of `one.tests` failed."""
    began, path = time.monotonic(), tree / one.file
    text = path.read_text()
    _write(path, one.applied(text))
    try:
        for tests in one.tests:
            status, output = _pytest(tree, tests)
            if status != _PASSED:
                break
    finally:
        _write(path, text)
    took = time.monotonic() - began
    if status == _PASSED:
        return Verdict(one, seconds=took), ""
    found = _NAME.findall(output)
    if status != _FAILED or not found:
        last = output.strip().splitlines()[-1:] or [""]
        return Verdict(one, problem=f"pytest ended with {status}: {last[0][:200]}", seconds=took), ""
    return Verdict(one, noticed=found[0].removeprefix("tests/"), seconds=took), tests


@contextmanager
def _copy() -> Iterator[Path]:
    """What git knows of the tree, as it is now, in a folder of its own."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT, capture_output=True, check=True,
    ).stdout.decode()  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="nodewright-mutations-") as folder:
        tree = Path(folder)
        for name in filter(None, listed.split("\0")):
            if (PROJECT / name).exists():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(PROJECT / name, tree / name)
        yield tree


def _write(path: Path, text: str) -> None:
    """Python must not take what it has compiled of another text: it compares times in whole seconds."""
    later = path.stat().st_mtime + 2
    path.write_text(text)
    os.utime(path, (later, later))


def _pytest(tree: Path, tests: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", f"tests/{tests}"]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            ["nice", "-n", _NICE, *command],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LONGEST,
        )
    except subprocess.TimeoutExpired:
        return -1, f"not done after {_LONGEST:g} s"
    return done.returncode, done.stdout + done.stderr
