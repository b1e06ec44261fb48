"""The launcher `nodewright`: what it says when it cannot create the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]


def launched(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROJECT / "nodewright"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_a_cache_that_cannot_be_written_is_named_with_its_remedy() -> None:
    found = launched("--help", NODEWRIGHT_CACHE="/proc/nodewright", NODEWRIGHT_PYTHON="")
    assert found.returncode == 1
    assert "cannot write to the cache directory /proc/nodewright" in found.stderr
    assert "do: Set NODEWRIGHT_CACHE" in found.stderr
    assert "waiting for another process" not in found.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["version"]], ids=" ".join)
def test_a_given_interpreter_is_used(arguments: list[str]) -> None:
    found = launched(*arguments, NODEWRIGHT_PYTHON=sys.executable, NODEWRIGHT_CACHE="/proc/nodewright")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("nodewright ")
