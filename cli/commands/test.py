"""`nodewright test`: every tier in order, each as one pytest run; arguments are pytest's."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cli.project import PROJECT
from nodelib.errors import Invalid


@dataclass(frozen=True, slots=True)
class TestTier:
    """A step of the test run: folders of tests/, or a tool's command line."""

    name: str
    folders: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()


TIERS = (
    TestTier("lint", tool=("ruff", "check", ".")),
    TestTier("format", tool=("ruff", "format", "--check", ".")),
    TestTier("types", tool=("mypy",)),
    TestTier("import contracts", tool=("importlinter.cli", "lint")),
    TestTier("unit and golden", ("unit",)),
    TestTier("netns", ("netns",)),
    TestTier("cluster", ("cluster",)),
    TestTier("conformance smoke", ("conformance",)),
)
_NO_TESTS = 5  # pytest's exit status when it collected nothing


def run(arguments: list[str]) -> None:
    """Run the tiers and say how each went; exit status 1 when one failed. Paths or -k select within one run."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    if any(_selects(argument) for argument in arguments):
        raise SystemExit(_spawn([sys.executable, "-m", "pytest", *arguments], environment))
    if os.geteuid() != 0:
        raise Invalid(
            "the netns, cluster and conformance tiers need root",
            step="test",
            action="Run `sudo ./nodewright test`, or only `./nodewright test tests/unit`.",
        )
    outcomes = [(tier, *_run_tier(tier, arguments, environment)) for tier in TIERS]
    print("\nTiers:")
    for tier, status, seconds in outcomes:
        word = "passed" if status == 0 else "no tests" if status == _NO_TESTS else f"FAILED (status {status})"
        print(f"  {tier.name:20} {word:20} {seconds:7.1f} s")
    raise SystemExit(1 if any(status not in (0, _NO_TESTS) for _, status, _ in outcomes) else 0)


def _run_tier(tier: TestTier, arguments: list[str], environment: dict[str, str]) -> tuple[int, float]:
    print(f"\n=== {tier.name} ===", flush=True)
    began = time.monotonic()
    if tier.tool:
        status = _spawn([sys.executable, "-m", *tier.tool], environment)
    else:
        folders = [f"tests/{name}" for name in tier.folders if Path(PROJECT, "tests", name).is_dir()]
        status = _spawn([sys.executable, "-m", "pytest", *folders, *arguments], environment) if folders else _NO_TESTS
    return status, time.monotonic() - began


def _selects(argument: str) -> bool:
    return argument in ("-k", "-m", "--lf", "--last-failed", "-h", "--help", "--collect-only") or (
        not argument.startswith("-") and Path(PROJECT, argument.partition("::")[0]).exists()
    )


def _spawn(argv: list[str], environment: dict[str, str]) -> int:
    # Output goes straight to the terminal, so this cannot go through nodelib.command, which collects it.
    os.chdir(PROJECT)
    pid = os.posix_spawn(argv[0], argv, environment)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
