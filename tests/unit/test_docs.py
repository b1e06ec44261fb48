"""The documents name only what exists: links between pages, their anchors, and paths of this repository."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path.parent.name for path in PROJECT.glob("*/__init__.py") if path.parent.name != "tests")
_BUILT = {"build", "results"}  # in .gitignore
_FOLDERS = "|".join((*PACKAGES, "bin", "docs", "tests", "vagrant", r"\.ci"))
_FENCE = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_PATH = re.compile(rf"(?<![\w./~$-])(?:\./)?((?:{_FOLDERS})/[\w./*{{}},-]*)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def pages() -> list[Path]:
    """Every Markdown page of the repository, hidden and built folders apart."""
    found = (page.relative_to(PROJECT) for page in PROJECT.rglob("*.md"))
    return sorted(page for page in found if not any(part[0] == "." or part in _BUILT for part in page.parts))


def links(text: str) -> Iterator[str]:
    """Targets inside the repository; code is not searched."""
    for target in _LINK.findall(_CODE.sub("`", _FENCE.sub("", text))):
        if not re.match(r"[a-z][a-z+.-]*:", target):
            yield unquote(target)


def named_paths(text: str) -> Iterator[str]:
    """Paths in backticks and code blocks that begin with a folder of the repository; braces are expanded."""
    code = [*_CODE.findall(_FENCE.sub("", text)), *_FENCE.findall(text)]
    for path in itertools.chain.from_iterable(_PATH.findall(piece) for piece in code):
        yield from expanded(path.rstrip(".,"))


def expanded(path: str) -> list[str]:
    """`a/{b,c}.py` is a/b.py and a/c.py."""
    if (braces := re.search(r"\{([^{}]*)\}", path)) is None:
        return [path]
    alternatives = (path[: braces.start()] + one + path[braces.end() :] for one in braces[1].split(","))
    return [one for alternative in alternatives for one in expanded(alternative)]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and GitLab make them; a repeated heading gets a number."""
    seen: dict[str, int] = {}
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
    return {f"{slug}-{number}" if number else slug for slug, last in seen.items() for number in range(last + 1)}


@pytest.mark.parametrize("page", pages(), ids=str)
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    broken = []
    for link in links((PROJECT / page).read_text()):
        name, _, anchor = link.partition("#")
        target = PROJECT / page.parent / name if name else PROJECT / page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", pages(), ids=str)
def test_named_files_and_folders_exist(page: Path) -> None:
    missing = [path for path in named_paths((PROJECT / page).read_text()) if not any(PROJECT.glob(path))]
    assert not missing


def test_decisions_are_numbered_without_a_gap_and_indexed() -> None:
    index = (PROJECT / "docs/decisions.md").read_text()
    listed = re.findall(r"^\| (\d{4}) \| \[(.*?)\]\((\S+)\) \| \d{4}-\d\d-\d\d \| (\w+)", index, re.MULTILINE)
    written = re.findall(r"^## (\d{4}) (.+)$", index, re.MULTILINE)
    for page in (PROJECT / "docs/decisions").glob("*.md"):
        number, title = page.read_text().partition("\n")[0].removeprefix("# ").split(" ", 1)
        assert page.name.startswith(f"{number}-")
        assert f"(decisions/{page.name})" in index
        written.append((number, title))
    assert sorted((number, title) for number, title, _, _ in listed) == sorted(written)
    assert sorted(number for number, _ in written) == [f"{number:04}" for number in range(1, len(written) + 1)]
    assert {status for *_, status in listed} <= {"accepted", "superseded", "open"}


def test_a_page_is_read_as_a_reader_reads_it() -> None:
    page = (
        "# Head `up`, and more\n[one](a.md#x) [web](https://example.org) `[no](b.md)`\n"
        "`pytest -m soak tests/unit/test_x.py::test_y` `agent/plan/{a,b}.py:` `plan/c.py` `https://host/docs/x.md`\n"
        "```console\n# not a heading\n./vagrant/run.sh start\n```\n# Head `up`, and more\n"
    )
    assert list(links(page)) == ["a.md#x"]
    assert list(named_paths(page)) == ["tests/unit/test_x.py", "agent/plan/a.py", "agent/plan/b.py", "vagrant/run.sh"]
    assert anchors(page) == {"head-up-and-more", "head-up-and-more-1"}


def test_every_package_says_what_it_is_for() -> None:
    packages = (path for name in PACKAGES for path in (PROJECT / name).rglob("__init__.py"))
    silent = [str(path.relative_to(PROJECT)) for path in packages if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not silent
