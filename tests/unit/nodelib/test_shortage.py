"""A lack of descriptors or memory in this process is told from a failure of what was asked for."""

from __future__ import annotations

import errno

import pytest

from nodelib.shortage import describe, is_shortage


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(OSError(errno.EMFILE, "x"), True, id="descriptors"),
        pytest.param(OSError(errno.ENOMEM, "x"), True, id="memory"),
        pytest.param(ConnectionRefusedError(errno.ECONNREFUSED, "x"), False, id="refused"),
        pytest.param(OSError("no number"), False, id="no number"),
        pytest.param(ValueError("x"), False, id="other"),
    ],
)
def test_is_shortage(error: Exception, expected: bool) -> None:
    assert is_shortage(error) is expected


def test_the_cause_counts() -> None:
    outer = RuntimeError("outer")
    outer.__cause__ = OSError(errno.ENFILE, "x")
    assert is_shortage(outer)
    assert "Too many open files in system" in describe(outer)
