from __future__ import annotations

import errno

import pytest

from cli.errors import describe, reported
from nodelib.errors import Invalid, Permanent


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
    assert "no space left" in text
    assert "/var/lib/x" in text
    assert "df -h" in text


def test_every_failure_of_a_group_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    group = ExceptionGroup("g", [Invalid("one"), ExceptionGroup("h", [Invalid("two"), Invalid("one")])])
    with pytest.raises(SystemExit) as ended, reported():
        raise group
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines() == ["error: one", "error: two"]


def test_an_interrupt_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, reported():
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert "run the same command again" in capsys.readouterr().err


def test_a_defect_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), reported():
        raise RuntimeError("boom")
    assert "defect of nodewright" in capsys.readouterr().err
