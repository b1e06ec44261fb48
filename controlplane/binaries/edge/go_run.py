"""Runs Go in a module's folder, and reads what it says while it runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any

from nodelib.command import CommandError, Completed, run_sync

_BUILD_TIMEOUT = 3600.0  # seconds; a cold build of the largest takes minutes on two cores
_LIST_TIMEOUT = 1200.0  # seconds; it fetches a gigabyte of sources when nothing is there
_LOOK_EVERY = 1.0  # seconds between two looks at what Go has said
# Go ends with this process, whatever ends it; its output goes to a file that is read while it runs.
_ALONE = ("setpriv", "--pdeathsig", "KILL", "sh", "-c", 'exec "$0" "$@" 2>>"$GO_OUTPUT"')


def list_packages(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> list[dict[str, Any]]:
    """What `go list -json` prints. Raises CommandError."""
    text = run_sync(["setpriv", "--pdeathsig", "KILL", *argv], timeout=_LIST_TIMEOUT, env=env, cwd=str(cwd)).text
    decoder, found, at = json.JSONDecoder(), [], 0
    while (at := text.find("{", at)) >= 0:
        package, at = decoder.raw_decode(text, at)
        found.append(package)
    return found


def source_bytes(package: Mapping[str, Any]) -> int:
    """The size of the Go files of a package that `go list` has described; those that cannot be read count nothing."""
    sizes = []
    for name in package.get("GoFiles") or ():
        try:
            sizes.append(Path(package.get("Dir", ""), name).stat().st_size)
        except OSError:
            continue
    return sum(sizes)


def run_go(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Path, look: Callable[[list[str]], None]
) -> None:
    """Run it; `look` gets the lines of `output`, to which it prints, once a second.

    Raises CommandError with what it printed.
    """
    environment = {**env, "GO_OUTPUT": str(output)}
    output.touch()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="go-build") as pool:
        running: Future[Completed] = pool.submit(
            run_sync, [*_ALONE, *argv], timeout=_BUILD_TIMEOUT, env=environment, cwd=str(cwd), check=False
        )
        while True:
            try:
                done = running.result(timeout=_LOOK_EVERY)
                break
            except FutureTimeoutError:
                if running.done():
                    raise
                look(_lines(output))
    if done.returncode != 0:
        raise CommandError(argv, done.returncode, output.read_bytes() or done.stderr or done.stdout)


def _lines(output: Path) -> list[str]:
    return output.read_text(errors="replace").splitlines()
