"""Tests import no private name of another module (tests/README.md)."""

from __future__ import annotations

import ast
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]


def test_no_private_name_is_imported() -> None:
    found = [
        f"{path.relative_to(_TESTS)}: {one.name} of {node.module}"
        for path in sorted(_TESTS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for one in node.names
        if one.name.startswith("_")
    ]
    assert found == []
