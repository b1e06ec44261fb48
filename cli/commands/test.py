"""`nodewright test`: the test tiers, each a run of pytest or of another tool in a process of its own."""

from __future__ import annotations

import difflib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import NoReturn

from cli.commands.workers import FAILED, NO_TESTS, Share, both, parts, workers_here
from cli.errors import need_checkout
from cli.project import PROJECT
from controlplane.binaries.edge.go_folders import empty_go_folders, used_go_folders
from controlplane.cluster.edge.roots import cache_root
from nodelib.errors import Invalid, WrongUsage


@dataclass(frozen=True, slots=True)
class TestTier:
    """One step of the test run: a folder of tests/, or a tool, as arguments of the Python interpreter.

    `share`: None: its tests run one after the other.
    """

    name: str
    folder: str = ""
    tool: tuple[str, ...] = ()
    share: Share | None = None
    needs_root: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a tier ended. `status`: of its tool; `again`: how many tests passed at the second try only."""

    tier: TestTier
    status: int
    seconds: float
    again: int = 0

    @property
    def ok(self) -> bool:
        return self.status in (0, NO_TESTS)


_CLUSTERS = Share("loadfile", gib=4, most=2, alone=True, lent="NODEWRIGHT_TEST_CLUSTER")
TIERS = (
    TestTier("lint", tool=("-m", "ruff", "check", ".")),
    TestTier("format", tool=("-m", "ruff", "format", "--check", ".")),
    TestTier("types", tool=("-m", "mypy")),
    # `python -m importlinter.cli` would do nothing and succeed: the module does not call its command.
    TestTier("contracts", tool=("-c", "from importlinter.cli import lint_imports_command as lint; lint()")),
    TestTier("unit", "unit", share=Share("worksteal", spare=1)),
    TestTier("netns", "netns", share=Share("loadfile"), needs_root=True),
    TestTier("cluster", "cluster", share=_CLUSTERS, needs_root=True),
    TestTier("smoke", "conformance", needs_root=True),
)
_BY_NAME = {tier.name: tier for tier in TIERS}
_FEW = 3  # more tests than this do not fail by chance
_SLOWEST = ("--durations=25", "--durations-min=5")  # seconds
_LAST_FAILED = ".pytest_cache/v/cache/lastfailed"  # what --last-failed reads
_SELECTING = ("-k", "-m", "--lf", "--last-failed", "-h", "--help", "--collect-only")
_VALUED = ("-k", "-m", "-p", "-c", "-o", "-W", "-r", "-n")  # short options of pytest that take the next argument


def run(arguments: Sequence[str]) -> None:
    """Run the tiers that lead `arguments`, or all; the rest is for pytest. Exit status 1 when a tier failed.

    Without a tier's name, a path or an option such as -k starts pytest once, and its exit status is ours.
    """
    need_checkout("test")
    named, rest = split(arguments)
    _refuse_what_cannot_run(named, rest)
    if not named and any(_selects(argument) for argument in rest):
        raise SystemExit(spawn([sys.executable, "-m", "pytest", *rest]))
    tiers = named or TIERS
    _need_root_for(tiers)
    with _go_folders_kept(tiers):
        outcomes = [_run_tier(tier, rest) for tier in tiers]
    print("\n".join(("", "Tiers:", *table(outcomes))))
    raise SystemExit(exit_status(outcomes))


@contextmanager
def _go_folders_kept(tiers: Sequence[TestTier]) -> Iterator[None]:
    """Tests build one program after the other: what Go has compiled for one is removed after the last."""
    if not any(tier.needs_root for tier in tiers):
        yield
        return
    cache = Path(cache_root())
    with used_go_folders(cache, print):
        yield
    empty_go_folders(cache)


def split(arguments: Sequence[str]) -> tuple[tuple[TestTier, ...], list[str]]:
    """The tiers that `arguments` begin with, each once and in the order of TIERS; and what is left for pytest.

    Later words are pytest's: `-k unit` is an expression. A path that has a tier's name is written ./NAME.
    """
    names = list(takewhile(_BY_NAME.__contains__, arguments))
    return tuple(tier for tier in TIERS if tier.name in names), list(arguments[len(names) :])


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """A line a tier: its name, its result, its duration in seconds; then the sum."""
    rows = [(one.tier.name, _result(one), one.seconds) for one in outcomes]
    rows += [("all", "", sum(one.seconds for one in outcomes))] if len(rows) > 1 else []
    return [f"  {name:20} {result:20} {seconds:7.1f} s" for name, result, seconds in rows]


def exit_status(outcomes: Sequence[Outcome]) -> int:
    """1 when a tier failed; pytest's 5 when not one tier found anything to run; else 0."""
    if not all(one.ok for one in outcomes):
        return 1
    return NO_TESTS if all(one.status == NO_TESTS for one in outcomes) else 0


def _result(outcome: Outcome) -> str:
    if outcome.status == 0:
        return f"passed, {outcome.again} at 2nd try" if outcome.again else "passed"
    return "no tests" if outcome.status == NO_TESTS else f"FAILED (status {outcome.status})"


def _refuse_what_cannot_run(named: Sequence[TestTier], rest: Sequence[str]) -> None:
    if late := [word for word in _positional(rest) if word in _BY_NAME]:
        raise WrongUsage(
            f"tiers come before the arguments for pytest: {', '.join(late)}",
            step="test",
            action=f"Run `./nodewright test {' '.join(late)} ...`. A path with this name is written ./{late[0]}.",
        )
    if unknown := [word for word in _positional(rest) if not _is_path(word)]:
        near = difflib.get_close_matches(unknown[0], _BY_NAME, n=1)
        raise WrongUsage(
            f"neither a tier nor a path: {', '.join(unknown)}",
            step="test",
            action=f"{f'Did you mean {near[0]}? ' if near else ''}Tiers: {', '.join(_BY_NAME)}. Paths begin in the"
            " folder of the project, as tests/unit/cli.",
        )
    if not named or not rest:
        return
    if paths := [word for word in _positional(rest) if _is_path(word)]:
        raise WrongUsage(
            f"tiers and paths cannot be combined: {', '.join(paths)}",
            step="test",
            action=f"Run `./nodewright test {' '.join(paths)}` without a tier, or select within the tier with -k.",
        )
    if all(tier.tool for tier in named):
        raise WrongUsage(
            f"{', '.join(tier.name for tier in named)}: these tiers do not run pytest, so they take no more arguments",
            obj=" ".join(rest),
            step="test",
            action=f"Leave the arguments out. Tiers: {', '.join(_BY_NAME)}.",
        )


def _need_root_for(tiers: Sequence[TestTier]) -> None:
    if os.geteuid() == 0:
        return
    if names := [tier.name for tier in tiers if tier.needs_root]:
        allowed = " ".join(tier.name for tier in TIERS if not tier.needs_root)
        raise Invalid(
            f"{', '.join(names)}: these tiers need root",
            step="test",
            action=f"Run it with sudo, or only what needs no root: `./nodewright test {allowed}`.",
        )


def _run_tier(tier: TestTier, arguments: Sequence[str]) -> Outcome:
    print(f"\n=== {tier.name} ===", flush=True)
    began = time.monotonic()
    again = 0
    if tier.tool:
        status = spawn([sys.executable, *tier.tool])
    elif Path(PROJECT, "tests", tier.folder).is_dir():
        status, again = _run_pytest(tier, arguments)
    else:
        status = NO_TESTS
    return Outcome(tier, status, time.monotonic() - began, again)


def _run_pytest(tier: TestTier, arguments: Sequence[str]) -> tuple[int, int]:
    """The exit status, and how many tests passed at the second try only.

    A whole tier is 10,000 tests on a machine that others use too: one that times out by chance must not hide what the
    run says of the others. It gets a second try, alone, and the table tells of it. A defect fails both times.
    """
    command = [sys.executable, "-m", "pytest", f"tests/{tier.folder}"]
    if arguments:
        return spawn([*command, *arguments]), 0
    status = NO_TESTS
    for part in parts(tier.share, workers_here(tier.share) if tier.share else 1):
        status = both(status, spawn([*command, *part, *_SLOWEST]))
        if status not in (0, FAILED, NO_TESTS):  # interrupted, or pytest itself is broken
            return status, 0
    failed = _last_failed(tier) if status == FAILED else frozenset()
    if not 0 < len(failed) <= _FEW:
        return status, 0
    print(f"\n=== {tier.name}, second try of the {len(failed)} that failed ===", flush=True)
    second = spawn([*command, "--last-failed", "--last-failed-no-failures", "none"])
    # pytest says nothing of a test that it does not find again by its name: that one has not passed.
    if second == 0 and not failed & _last_failed(tier):
        return 0, len(failed)
    return status, 0


def _last_failed(tier: TestTier) -> frozenset[str]:
    try:
        names = json.loads(Path(PROJECT, _LAST_FAILED).read_bytes())
    except (OSError, ValueError):
        return frozenset()
    return frozenset(name for name in names if name.startswith(f"tests/{tier.folder}/"))


def _selects(argument: str) -> bool:
    return argument in _SELECTING or _is_path(argument)


def _positional(arguments: Sequence[str]) -> list[str]:
    """Pytest's arguments without options, and without what may be the value of one, as in -k cli."""
    return [
        argument
        for argument, previous in zip(arguments, ("", *arguments), strict=False)
        if not argument.startswith("-") and previous not in _VALUED and not previous.startswith("--")
    ]


def _is_path(argument: str) -> bool:
    return not argument.startswith("-") and Path(PROJECT, argument.partition("::")[0]).exists()


def spawn(argv: list[str]) -> int:
    """Run a command line in the project, with our stdin and output; its exit status, negative for a signal."""
    # The output goes straight to the terminal, so this cannot use nodelib.command, which collects it.
    os.chdir(PROJECT)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    environment.pop("PYTHONSAFEPATH", None)  # of the launcher: this directory is ours
    pid = os.posix_spawn(argv[0], argv, environment)

    def passed_on(number: int, _: object) -> NoReturn:  # it takes its clusters down, and ends
        os.kill(pid, number)
        os.waitpid(pid, 0)
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, passed_on)
    try:
        _, status = os.waitpid(pid, 0)
    except KeyboardInterrupt:  # the terminal has told it, too
        os.waitpid(pid, 0)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    return os.waitstatus_to_exitcode(status)
