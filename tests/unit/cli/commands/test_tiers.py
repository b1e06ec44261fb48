"""`nodewright test`: which tiers run, what pytest is given, the table and the exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app
from cli.commands import test as command
from cli.commands.test import TIERS, Outcome
from cli.commands.workers import Share, both, parts, workers
from nodelib.errors import Invalid

NAMES = ["lint", "format", "types", "contracts", "unit", "netns", "cluster", "smoke"]
SLOWEST = ["--durations=25", "--durations-min=5"]
WORKERS = ["-n", "2", "--dist", "worksteal", *SLOWEST]
BY_FILE = ["-n", "2", "--dist", "loadfile"]
BESIDE, ALONE = ["-m", "not soak and not alone"], ["-m", "alone and not soak"]
GIB = 1 << 30
PROJECT = Path(__file__).resolve().parents[4]


class Runs:
    """Command lines in place of processes; `statuses`: exit status by a word of the command line.

    `second`: what pytest leaves as failed when it runs a second time, a file and its text.
    """

    def __init__(self, statuses: dict[str, int], second: tuple[Path, str] | None = None) -> None:
        self.statuses, self.second, self.argvs = statuses, second, list[list[str]]()

    def __call__(self, argv: list[str]) -> int:
        self.argvs.append(argv[1:])
        if self.second is not None and len(self.argvs) == 2:
            self.second[0].write_text(self.second[1])
        return next((status for word, status in self.statuses.items() if word in argv), 0)


def ran(monkeypatch: pytest.MonkeyPatch, *arguments: str, **statuses: int) -> tuple[Runs, int, str]:
    """The command lines that were run, the exit status and the output."""
    runs = Runs({f"tests/{name}": status for name, status in statuses.items()})
    monkeypatch.setattr(command, "spawn", runs)
    done = CliRunner().invoke(app, ["test", *arguments])
    return runs, done.exit_code, done.output


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.fixture(autouse=True)
def with_two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEWRIGHT_TEST_WORKERS", "2")
    monkeypatch.delenv("NODEWRIGHT_TEST_CLUSTER", raising=False)


def test_every_tier_runs_without_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, status, text = ran(monkeypatch)
    assert [tier.name for tier in TIERS] == NAMES
    assert status == 0 and len(runs.argvs) == len(NAMES) + 1
    assert [argv for argv in runs.argvs if "pytest" in argv] == [
        ["-m", "pytest", "tests/unit", *WORKERS],
        ["-m", "pytest", "tests/netns", *BY_FILE, *SLOWEST],
        ["-m", "pytest", "tests/cluster", *BY_FILE, *BESIDE, *SLOWEST],
        ["-m", "pytest", "tests/cluster", *ALONE, *SLOWEST],
        ["-m", "pytest", "tests/conformance", *SLOWEST],
    ]
    table = [line.split() for line in text.partition("Tiers:\n")[2].splitlines()]
    assert [row[0] for row in table] == [*NAMES, "all"]
    assert all(row[-1] == "s" and float(row[-2]) >= 0 for row in table)
    assert all(row[1] == "passed" for row in table[:-1])


@pytest.mark.parametrize("name", NAMES)
def test_a_tier_runs_alone_by_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, status, text = ran(monkeypatch, name)
    assert len(runs.argvs) == (2 if name == "cluster" else 1) and status == 0
    assert [line.split()[:2] for line in text.partition("Tiers:\n")[2].splitlines()] == [[name, "passed"]]


@pytest.mark.parametrize(
    ("cores", "gib", "expected"),
    [
        (1, 64, {"unit": 1, "netns": 1, "cluster": 1}),
        (2, 16, {"unit": 3, "netns": 2, "cluster": 2}),
        (2, 7, {"unit": 3, "netns": 2, "cluster": 1}),
        (2, 2, {"unit": 2, "netns": 2, "cluster": 1}),
        (2, 0, {"unit": 1, "netns": 1, "cluster": 1}),
        (16, 64, {"unit": 17, "netns": 16, "cluster": 2}),
    ],
)
def test_a_machine_has_as_many_workers_as_it_can_bear(cores: int, gib: int, expected: dict[str, int]) -> None:
    memory = gib * GIB + GIB // 2
    shares = {tier.name: tier.share for tier in TIERS if tier.share}
    assert {name: workers(share, cores, memory) for name, share in shares.items()} == expected


def test_the_number_of_workers_can_be_given() -> None:
    share = Share("loadfile", gib=4, most=2)
    assert [workers(share, 1, GIB, asked) for asked in ("1", "2", "5")] == [1, 2, 5]
    for wrong in ("0", "-1", "two"):
        with pytest.raises(Invalid, match="is no number of workers"):
            workers(share, 2, 64 * GIB, wrong)


def test_a_lent_cluster_has_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEWRIGHT_TEST_CLUSTER", "mine")
    assert ran(monkeypatch, "cluster")[0].argvs == [["-m", "pytest", "tests/cluster", *SLOWEST]]
    assert ran(monkeypatch, "unit")[0].argvs == [["-m", "pytest", "tests/unit", *WORKERS]]


def test_one_worker_runs_the_tests_that_are_alone_with_the_others() -> None:
    share = Share("loadfile", alone=True)
    assert parts(share, 1) == parts(None, 1) == [()]
    assert [list(part) for part in parts(share, 2)] == [[*BY_FILE, *BESIDE], ALONE]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 2, 1), (0, 5, 0), (5, 0, 0), (5, 5, 5), (1, 5, 1), (5, 1, 1)],
)
def test_two_runs_of_a_tier_have_one_status(first: int, second: int, expected: int) -> None:
    assert both(first, second) == expected


def test_an_interrupted_run_is_followed_by_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, status, _ = ran(monkeypatch, "cluster", cluster=2)
    assert (len(runs.argvs), status) == (1, 1)


def test_ctrl_c_waits_for_what_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal interrupts both, and the one that was started has clusters to take down."""
    real, waited = os.waitpid, list[int]()

    def waitpid(pid: int, options: int) -> tuple[int, int]:
        waited.append(pid)
        if len(waited) == 1:
            raise KeyboardInterrupt
        return real(pid, options)

    monkeypatch.setattr(os, "waitpid", waitpid)
    with pytest.raises(KeyboardInterrupt):
        command.spawn([sys.executable, "-c", ""])
    assert len(waited) == 2
    with pytest.raises(ProcessLookupError):
        os.kill(waited[0], 0)


_SPAWNS = """
import sys
from cli.commands.test import spawn
spawn([sys.executable, "-c", sys.argv[1]])
"""
_CLEANS = """
import signal, time
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    print("started", flush=True)
    time.sleep(60)
finally:
    print("clusters are down", flush=True)
"""


def test_what_was_started_is_told_to_end_and_waited_for() -> None:
    """By SIGTERM, as CI sends it: pytest went on alone, with its clusters."""
    argv = [sys.executable, "-c", _SPAWNS, _CLEANS]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=PROJECT) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "started\n"
        running.terminate()
        assert running.wait(60) == 128 + 15
        assert running.stdout.read() == "clusters are down\n"


def test_several_tiers_run_in_their_own_order_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, _, text = ran(monkeypatch, "unit", "lint", "unit")
    assert [argv[1] for argv in runs.argvs] == ["ruff", "pytest"]
    assert [line.split()[0] for line in text.partition("Tiers:\n")[2].splitlines()] == ["lint", "unit", "all"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["unit", "-x", "-k", "volumes or probes"], ["tests/unit", "-x", "-k", "volumes or probes"]),
        (["unit", "-k", "cli"], ["tests/unit", "-k", "cli"]),
        (["unit", "-k", "netns"], ["tests/unit", "-k", "netns"]),
        (["unit", "--maxfail", "1", "-khello"], ["tests/unit", "--maxfail", "1", "-khello"]),
        (["-k", "unit"], ["-k", "unit"]),
        (["-m", "netns"], ["-m", "netns"]),
        (["tests/unit/cli", "-q"], ["tests/unit/cli", "-q"]),
        (["tests/unit/cli/commands/test_tiers.py::test_x"], ["tests/unit/cli/commands/test_tiers.py::test_x"]),
        (["--", "--help"], ["--help"]),
        (["--collect-only"], ["--collect-only"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_other_arguments_are_for_pytest(
    arguments: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, _, _ = ran(monkeypatch, *arguments)
    assert runs.argvs == [["-m", "pytest", *expected]]


def test_options_that_select_nothing_go_to_every_tier_of_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, _, _ = ran(monkeypatch, "-q")
    assert len(runs.argvs) == len(NAMES)
    assert [("-q" in argv) for argv in runs.argvs] == [False] * 4 + [True] * 4


def test_a_path_with_the_name_of_a_tier_is_written_with_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unit").mkdir()
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    monkeypatch.setattr(command, "PROJECT", tmp_path)
    assert ran(monkeypatch, "unit")[0].argvs == [["-m", "pytest", "tests/unit", *WORKERS]]
    assert ran(monkeypatch, "./unit")[0].argvs == [["-m", "pytest", "./unit"]]


@pytest.mark.parametrize(
    ("statuses", "expected", "word"),
    [
        ({}, 0, "passed"),
        ({"unit": 1}, 1, "FAILED (status 1)"),
        ({"unit": 2}, 1, "FAILED (status 2)"),
        ({"unit": 5}, 5, "no tests"),
        ({"unit": -9}, 1, "FAILED (status -9)"),
    ],
)
def test_the_exit_status_and_the_table_tell_the_result(
    statuses: dict[str, int], expected: int, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, status, text = ran(monkeypatch, "unit", **statuses)
    assert status == expected and word in text


@pytest.mark.parametrize(
    ("failed", "second", "left", "tries", "expected", "word"),
    [
        (["unit/a.py::one"], 0, [], 2, 0, "passed, 1 at 2nd try"),
        (["unit/a.py::one", "netns/b.py::of_an_earlier_run"], 1, ["unit/a.py::one"], 2, 1, "FAILED (status 1)"),
        (["unit/a.py::one", "unit/a.py::two", "unit/a.py::three", "unit/a.py::four"], 0, [], 1, 1, "FAILED (status 1)"),
        ([], 0, [], 1, 1, "FAILED (status 1)"),
        (["unit/a.py::one[of today]"], 5, ["unit/a.py::one[of today]"], 2, 1, "FAILED (status 1)"),
        (["unit/a.py::one", "unit/a.py::two[x]"], 0, ["unit/a.py::two[x]"], 2, 1, "FAILED (status 1)"),
    ],
    ids=["by chance", "a defect", "too many for chance", "nothing written down", "none found again", "one not found"],
)
def test_few_failed_tests_of_a_whole_tier_get_a_second_try(
    failed: list[str], second: int, left: list[str], tries: int, expected: int, word: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / ".pytest_cache/v/cache").mkdir(parents=True)
    cache = tmp_path / ".pytest_cache/v/cache/lastfailed"
    cache.write_text(json.dumps({f"tests/{name}": True for name in failed}))
    monkeypatch.setattr(command, "PROJECT", tmp_path)
    still_failed = json.dumps({f"tests/{name}": True for name in left})
    runs = Runs({"--dist": 1, "--last-failed": second}, (cache, still_failed))
    monkeypatch.setattr(command, "spawn", runs)
    done = CliRunner().invoke(app, ["test", "unit"])
    status, text = done.exit_code, done.output
    assert (len(runs.argvs), status) == (tries, expected) and word in text
    assert tries == 1 or runs.argvs[1][3:] == ["--last-failed", "--last-failed-no-failures", "none"]


def test_what_was_selected_by_hand_has_one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(ran(monkeypatch, "unit", "-x", unit=1)[0].argvs) == 1


def test_a_tier_without_tests_fails_nothing_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(monkeypatch, "lint", "unit", unit=5)[1] == 0
    assert ran(monkeypatch, "lint", "unit", "netns", unit=5, netns=1)[1] == 1


def test_pytest_s_own_exit_status_is_kept_when_it_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs({"pytest": 4})
    monkeypatch.setattr(command, "spawn", runs)
    assert CliRunner().invoke(app, ["test", "-k", "x"]).exit_code == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["unit", "tests/unit/cli"], "tiers and paths cannot be combined: tests/unit/cli"),
        (["-x", "unit"], "tiers come before the arguments for pytest: unit"),
        (["-m", "netns", "lint"], "tiers come before the arguments for pytest: lint"),
        (["unit", "-q", "lint"], "tiers come before the arguments for pytest: lint"),
        (["lint", "types", "-x"], "lint, types: these tiers do not run pytest"),
        (["tests/unit/clii", "-q"], "neither a tier nor a path: tests/unit/clii"),
        (["untit"], "Did you mean unit?"),
        (["unit", "typs"], "Did you mean types?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_refused(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, status, text = ran(monkeypatch, *arguments)
    assert (runs.argvs, status) == ([], 2)
    assert message in text and "do: " in text


def test_only_tiers_that_need_root_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert ran(monkeypatch, "lint", "unit")[1] == 0
    runs, status, text = ran(monkeypatch)
    assert (runs.argvs, status) == ([], 1)
    assert "netns, cluster, smoke: these tiers need root" in text
    assert "./nodewright test lint format types contracts unit" in text


def test_the_help_explains_every_tier_and_how_to_reach_pytest_s() -> None:
    text = CliRunner().invoke(app, ["test", "--help"]).output
    assert CliRunner().invoke(app, ["test", "-h"]).output.strip() == text.strip()
    assert all(f" {name}: " in text for name in NAMES)
    assert "./nodewright test -- --help" in " ".join(text.split())


def test_the_output_of_a_tier_reaches_ours(capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever runs the tiers reads pytest's closing line."""
    here = Path.cwd()
    try:
        assert command.spawn([sys.executable, "-c", "print('1 passed in 0.01s'); raise SystemExit(3)"]) == 3
    finally:
        os.chdir(here)
    assert capfd.readouterr().out == "1 passed in 0.01s\n"


_BROKEN: dict[str, dict[str, str]] = {
    "lint": {"a.py": "import os\n"},
    "format": {"a.py": "x=1\n"},
    "types": {"a.py": "x: int = ''\n", "pyproject.toml": "[tool.mypy]\nfiles = ['a.py']\n"},
    "contracts": {
        "one/__init__.py": "import two\n",
        "two/__init__.py": "",
        "pyproject.toml": """
[tool.importlinter]
root_packages = ["one", "two"]
[[tool.importlinter.contracts]]
name = "apart"
type = "independence"
modules = ["one", "two"]
""",
    },
}


@pytest.mark.parametrize("name", list(_BROKEN))
def test_a_tool_s_tier_fails_on_what_it_looks_for(name: str, tmp_path: Path) -> None:
    for path, text in _BROKEN[name].items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    assert tool(name, tmp_path) != 0
    for path in (path for path in _BROKEN[name] if path.endswith(".py")):
        (tmp_path / path).write_text("")
    assert tool(name, tmp_path) == 0


def tool(name: str, folder: Path) -> int:
    [arguments] = [tier.tool for tier in TIERS if tier.name == name]
    return run([sys.executable, *arguments], folder)


def run(argv: Sequence[str], folder: Path) -> int:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, timeout=120).returncode


def test_the_durations_are_summed_below_several_tiers() -> None:
    lint, unit = (next(tier for tier in TIERS if tier.name == name) for name in ("lint", "unit"))
    lines = command.table([Outcome(lint, 0, 1.25), Outcome(unit, 1, 61.0)])
    assert [line.split() for line in lines] == [
        ["lint", "passed", "1.2", "s"],
        ["unit", "FAILED", "(status", "1)", "61.0", "s"],
        ["all", "62.2", "s"],
    ]
    assert len(command.table([Outcome(lint, 0, 1.25)])) == 1
