"""A module that says of itself that it is pure is in an import contract that holds it to that."""

from __future__ import annotations

import ast
import tomllib
from fnmatch import fnmatch
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def test_what_says_that_it_is_pure_is_in_a_contract() -> None:
    linter = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    pure = [module for one in linter["contracts"] if " pure" in one["name"] for module in one["source_modules"]]
    says_so = []
    for package in linter["root_packages"]:
        for path in sorted((_ROOT / package).rglob("*.py")):
            first, *_ = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")
            if "Pure." in first or "Pure:" in first:
                says_so.append(".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__"))
    assert len(says_so) > 100
    assert [name for name in says_so if not any(fnmatch(name, one) or fnmatch(name, f"{one}.*") for one in pure)] == []
