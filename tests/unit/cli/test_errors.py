"""Errors as the user reads them, and the exit statuses."""

from __future__ import annotations

import errno
import os
import sys

import pytest

from cli.errors import describe, need_root, reported
from nodelib.errors import Invalid, NodewrightError, Permanent, Temporary, WrongUsage


def test_an_error_says_object_step_cause_and_action() -> None:
    text = describe(Permanent("is taken", obj="10.89.0.0/24", step="check the subnet", action="Give another."))
    assert text.splitlines() == [
        "error: is taken",
        "  on: 10.89.0.0/24",
        "  while: check the subnet",
        "  do: Give another.",
    ]


def test_a_full_disk_is_named() -> None:
    text = describe(OSError(errno.ENOSPC, "No space left on device", "/var/lib/x"))
    assert text.splitlines() == [
        "error: no space left on the disk",
        "  on: /var/lib/x",
        "  do: Free some space (`df -h`).",
    ]


def test_a_missing_right_names_the_command_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["nodewright", "status", "--name", "lab"])
    text = describe(PermissionError(errno.EACCES, "Permission denied", "/var/lib/x/cluster.json"))
    assert text.splitlines() == [
        "error: only root may use /var/lib/x/cluster.json",
        "  do: Run `sudo ./nodewright status --name lab`.",
    ]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    text = describe(PermissionError(errno.EPERM, "Operation not permitted", "/proc/1"))
    assert text.splitlines() == ["error: Operation not permitted", "  on: /proc/1"]


def test_the_advice_keeps_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """sudo passes no environment on."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["nodewright", "up", "--nodes", "3"])
    monkeypatch.setenv("NODEWRIGHT_NAME", "lab")
    monkeypatch.setenv("NODEWRIGHT_CACHE", "/big disk")
    monkeypatch.setenv("NODEWRIGHT_LAUNCHER", "/opt/node wright/nodewright")
    with pytest.raises(NodewrightError) as caught:
        need_root("up")
    line = "sudo env NODEWRIGHT_NAME=lab 'NODEWRIGHT_CACHE=/big disk' '/opt/node wright/nodewright' up --nodes 3"
    assert caught.value.action == f"Run `{line}`."


def test_a_name_from_outside_cannot_drive_the_terminal() -> None:
    text = describe(FileNotFoundError(errno.ENOENT, "No such file or directory", "a\x1b[2Jb"))
    assert "\x1b" not in text and "[Errno" not in text


@pytest.fixture(autouse=True)
def _called_by_its_plain_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAUNCHER", "NAME", "STATE", "CACHE", "PYTHON"):
        monkeypatch.delenv(f"NODEWRIGHT_{name}", raising=False)


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["nodewright", "up", "--name", "lab", "--subnet", "a b"], "up --name lab --subnet 'a b'"),
        (["nodewright", "up", "--name=x y"], "up '--name=x y'"),
        (["-c"], "up"),
        (["pytest", "tests"], "up"),
    ],
    ids=" ".join,
)
def test_the_remedy_for_missing_root_keeps_the_options(
    argv: list[str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(NodewrightError) as caught:
        need_root("up")
    assert caught.value.action == f"Run `sudo ./nodewright {line}`."


def test_every_failure_of_a_group_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    group = ExceptionGroup("g", [Invalid("one"), ExceptionGroup("h", [Invalid("two"), Invalid("one")])])
    with pytest.raises(SystemExit) as ended, reported():
        raise group
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines() == ["error: one", "error: two"]


WRONG, FAILED = WrongUsage("no size", obj="--memory lots"), Temporary("gone", obj="node1")


@pytest.mark.parametrize(
    ("error", "status"),
    [(WRONG, 2), (FAILED, 1), (ExceptionGroup("", [WRONG, WRONG]), 2), (ExceptionGroup("", [WRONG, FAILED]), 1)],
    ids=["a wrong option", "a failure", "two wrong options", "a wrong option and a failure"],
)
def test_a_wrong_command_line_has_a_status_of_its_own(error: Exception, status: int) -> None:
    with pytest.raises(SystemExit) as ended, reported():
        raise error
    assert ended.value.code == status


def test_an_interrupt_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, reported():
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert "run the same command again" in capsys.readouterr().err


def test_a_defect_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, reported():
        raise RuntimeError("boom")
    text = capsys.readouterr().err
    assert ended.value.code == 1
    assert "defect of nodewright" in text and "Traceback" in text and "RuntimeError: boom" in text


def test_words_of_others_drive_no_terminal_and_forge_no_line() -> None:
    text = describe(Permanent("no\x1b[2J\n  do: run `evil`\rx", obj="a\nb", step="s", action="d"))
    assert text == "error: no\\x1b[2J\n      do: run `evil`\\rx\n  on: a\n    b\n  while: s\n  do: d"
    assert len(describe(Permanent("x" * (1 << 20)))) < 70_000
