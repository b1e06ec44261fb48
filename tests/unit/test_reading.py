"""docs/reading.md names only what exists: each stop's files are there, and each name is defined in one of them.

A stop is a section "## N. Title". In it, code in backticks that ends in .py or .toml is a file, and an identifier
(`ClassName`, `function_name`, `Class.method`, with or without "()") is looked up in the files of the stop; `agent.pods`
and the like are modules. Code with a space, a dash or a slash, and pages (.md), are commands, flags and documents: they
are not looked up.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "reading.md"
_STOP = re.compile(r"^## (\d+\. .+)$", re.MULTILINE)
_SECTION = re.compile(r"^## ", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*(\(\))?")


@dataclass(frozen=True)
class Stop:
    title: str
    files: tuple[str, ...]
    names: tuple[str, ...]


def stops(page: str) -> list[Stop]:
    """The numbered sections of the page; other sections, and fenced blocks of commands, name nothing to look up."""
    page = _FENCE.sub("", page)
    found = []
    for heading in _STOP.finditer(page):
        following = _SECTION.search(page, heading.end())
        codes = _CODE.findall(page[heading.end() : following.start() if following else len(page)])
        files = dict.fromkeys(code for code in codes if code.endswith((".py", ".toml")))
        names = dict.fromkeys(code.removesuffix("()") for code in codes if code not in files and _is_name(code))
        found.append(Stop(heading[1], tuple(files), tuple(names)))
    return found


def _is_name(code: str) -> bool:
    return _NAME.fullmatch(code) is not None and not code.endswith(".md")


def defined(tree: ast.Module) -> set[str]:
    """The functions, classes, variables and fields of a module, those of a class as "Class.name" and by name alone."""
    found: set[str] = set()
    for prefix, name in _definitions(tree, ""):
        found |= {name, f"{prefix}{name}"}
    return found


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    """Each name with the classes around it; a function's own variables are none, but attributes set on self are."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield prefix, child.name
            yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix, child.name
            yield from ((prefix, name) for name in _set_on_self(child))
        elif isinstance(child, (ast.Assign, ast.AnnAssign)):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            yield from ((prefix, name.id) for one in targets for name in ast.walk(one) if isinstance(name, ast.Name))
        elif isinstance(child, (ast.If, ast.Try)):
            yield from _definitions(child, prefix)


def _set_on_self(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def problems(stop: Stop, root: Path) -> list[str]:
    """What the stop names and is not there: files that do not exist, and names that none of its files defines."""
    missing = [name for name in stop.files if not (root / name).is_file()]
    sources = [name for name in stop.files if name.endswith(".py")]
    trees = [ast.parse((root / name).read_text()) for name in sources if name not in missing]
    known = set().union(*map(defined, trees)) if trees else set()
    where = ", ".join(sources) or "no file"
    return [f"{stop.title}: {name} does not exist" for name in missing] + [
        f"{stop.title}: {name} is not defined in {where}"
        for name in stop.names
        if name not in known and not _is_module(name, root)
    ]


def _is_module(name: str, root: Path) -> bool:
    """Whether a dotted name is a module or package of the project."""
    path = root.joinpath(*name.split("."))
    return "." in name and (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file())


def test_every_file_and_name_of_the_page_exists() -> None:
    found = stops(PAGE.read_text())
    assert found, "the page has no stop: no heading of the form '## 1. Title'"
    assert not [one.title for one in found if not one.files], "a stop without a file"
    assert not [line for one in found for line in problems(one, PROJECT)]


# --- the checker itself, on small pages ------------------------------------------------------------------------------

_MODULE = """
LIMIT: int = 3
FIRST, SECOND = 1, 2

class Table:
    rows: int = 0

    def __init__(self):
        self.inner = 1

    async def read(self):
        local = 1

def plan(): ...
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "table.py").write_text(_MODULE)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "agent" / "other.py").write_text("def walk(): ...\n")
    return tmp_path


def problems_of(page: str, root: Path) -> list[str]:
    return [line for stop in stops(page) for line in problems(stop, root)]


def test_a_page_whose_names_all_exist(tree: Path) -> None:
    page = """# Reading

Names before the first stop, such as `nowhere`, belong to no file.

## 1. The table

- `agent/table.py`: `Table`, `Table.read()`, `Table.rows`, `Table.inner`, `read`, `plan()`, `LIMIT` and `SECOND`.
- `agent.other` is a module, and `pyproject.toml` a file.
- Try `./nodewright up`, `--max-pods`, `docs/limits.md`, `ARCHITECTURE.md`.

```console
# `nothing` here is looked up
```

## 2. The walk

| file | look at |
| --- | --- |
| `agent/other.py` | `walk` |

## What now

Not a stop: `whatever`.
"""
    first, second = stops(page)
    assert (first.title, first.files) == ("1. The table", ("agent/table.py", "pyproject.toml"))
    assert first.names[:4] == ("Table", "Table.read", "Table.rows", "Table.inner")
    assert first.names[4:] == ("read", "plan", "LIMIT", "SECOND", "agent.other")
    assert (second.title, second.files, second.names) == ("2. The walk", ("agent/other.py",), ("walk",))
    assert problems_of(page, tree) == []


def test_a_page_with_names_that_do_not_exist(tree: Path) -> None:
    page = """## 1. The table
`agent/table.py` and `agent/gone.py`: `Table.write`, `Table.plan`, `local`, `walk`, `Tables()`, `agent.gone` and
`setup.toml`

## 2. Nowhere
`Table`
"""
    files = "agent/table.py, agent/gone.py"
    assert problems_of(page, tree) == [
        "1. The table: agent/gone.py does not exist",
        "1. The table: setup.toml does not exist",
        f"1. The table: Table.write is not defined in {files}",
        f"1. The table: Table.plan is not defined in {files}",
        f"1. The table: local is not defined in {files}",
        f"1. The table: walk is not defined in {files}",
        f"1. The table: Tables is not defined in {files}",
        f"1. The table: agent.gone is not defined in {files}",
        "2. Nowhere: Table is not defined in no file",
    ]
