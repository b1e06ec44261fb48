"""Lint, format, types and import contracts: one test each, so that a failure names the tool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
CHECKS = {
    "ruff check": [str(BIN / "ruff"), "check", "."],
    "ruff format": [str(BIN / "ruff"), "format", "--check", "."],
    "mypy --strict": [str(BIN / "mypy")],
    "import contracts": [str(BIN / "lint-imports")],
}


@pytest.mark.parametrize("name", CHECKS)
def test_static(name: str) -> None:
    done = subprocess.run(CHECKS[name], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{name}:\n{done.stdout}\n{done.stderr}"
