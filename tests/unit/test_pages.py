"""Every command in the pages is one that the command line knows, and README.zh-CN.md says what README.md says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main
from typer.testing import CliRunner

from cli.app import app
from tests.pages import GUIDES, NOT_RUN, PROJECT, SAYS, STATUS, Command, commands
from tests.unit.test_docs import pages

_ROOT: Any = typer.main.get_command(app)
_REFUSED: Any = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "UsageError")
_DAEMONS = (
    "agent",
    "kubelet",
    "kube-proxy",
    "loadbalancer",
    "proxy",
)  # take upstream's flags, and read them themselves
_INLINE = re.compile(r"`(\./nodewright [^`]+)`")
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_PLACEHOLDER = re.compile(r"…|\.\.\.|\b[A-Z]{3,}\b|\[")
EVERY = [one for page in pages() for one in commands(str(page))]
FOLLOWED = [one for page in GUIDES for one in commands(page)]


@pytest.fixture(autouse=True)
def _no_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEWRIGHT_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("NODEWRIGHT_NAME", raising=False)


def refused(words: Sequence[str]) -> str:
    """What the command line says against these words, "" for nothing. No command is run."""
    command, rest, path = _ROOT, list(words), ["nodewright"]
    while getattr(command, "commands", None) and rest and not rest[0].startswith("-"):
        path.append(rest.pop(0))
        if path[1] in _DAEMONS:
            return ""
        if path[-1] not in command.commands:
            return f"{' '.join(path)}: no such command"
        command = command.commands[path[-1]]
    try:
        command.make_context(" ".join(path), rest)
    except typer.Exit:
        return ""  # --help, --version
    except _REFUSED as error:
        return f"{' '.join(path)}: {error.format_message()}"
    return ""


def problems(command: Command) -> list[str]:
    """What is wrong with each `./nodewright …` in the command."""
    return [found for words in command.ours if (found := refused(words))]


@pytest.mark.parametrize("page", sorted({one.page for one in EVERY}))
def test_every_command_is_one_that_the_command_line_takes(page: str) -> None:
    assert [found for one in EVERY if one.page == page for found in problems(one)] == []


@pytest.mark.parametrize("page", [str(page) for page in pages()])
def test_so_is_every_command_in_a_sentence(page: str) -> None:
    text = _FENCE.sub("", (PROJECT / page).read_text())
    inline = [Command(page, 0, code) for code in _INLINE.findall(text) if not _PLACEHOLDER.search(code)]
    assert [found for one in inline for found in problems(one)] == []


@pytest.mark.parametrize(
    "line", sorted({" ".join(words) for one in EVERY for words in one.ours if words[:1] == ["up"]})
)
def test_the_clusters_of_the_pages_can_be_made(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also whether the options go together, which only `up` itself knows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(config_of_the_page())
    done = CliRunner().invoke(app, [*line.split(), *(() if "--print-" in line else ("--print-config",))])
    assert done.exit_code == 0, done.output + done.stderr
    assert done.output


def config_of_the_page() -> str:
    """The file that docs/config.md shows."""
    return (PROJECT / "docs/config.md").read_text().partition("```yaml\n")[2].partition("```")[0]


def test_every_command_that_no_test_runs_has_a_reason_that_is_needed() -> None:
    unused = [pattern for pattern, _ in NOT_RUN if not any(re.match(pattern, one.text) for one in FOLLOWED)]
    assert unused == []
    files = {name for _, why in NOT_RUN for name in re.findall(r"tests/[\w/]+\.py", why)}
    assert [name for name in sorted(files) if not (PROJECT / name).is_file()] == []
    run = {one.text for one in FOLLOWED if not one.not_run}
    assert [text for text in (*STATUS, *SAYS) if text not in run] == []


# --- README.zh-CN.md -------------------------------------------------------------------------------------------------

_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_FIGURE = re.compile(r"\d+(?:[.,]\d+)*")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#+) ", re.MULTILINE)


def figures(text: str) -> list[list[str]]:
    """The numbers of each row of the tables."""
    return [sorted(_FIGURE.findall(re.sub(r"\]\([^)]*\)", "]", row))) for row in _ROW.findall(_FENCE.sub("", text))]


def shape(text: str) -> dict[str, object]:
    """What two languages have in common."""
    bare = _FENCE.sub("", text)
    links = [link for link in _LINK.findall(bare) if not re.fullmatch(r"README(\.zh-CN)?\.md", link)]
    return {
        "commands": [(one.block, one.text) for one in commands("", text)],
        "figures of the tables": figures(text),
        "headings": [len(level) for level in _HEADING.findall(bare)],
        "links": sorted(links),
        "pictures": re.findall(r"^```mermaid$", text, re.MULTILINE),
    }


def test_no_command_that_a_test_runs_writes_into_a_file_of_this_machine() -> None:
    """The tests run them as root, in a folder of their own."""
    writes = re.compile(r">\s*/(?!dev/null\b)|\b(?:tee|install|cp|mv)\b.*\s/")
    typed = [(one, re.sub(r"'[^']*'", "", one.text)) for one in FOLLOWED if not one.not_run]
    assert [str(one) for one, text in typed if writes.search(text)] == []


def test_the_readme_in_chinese_has_the_same_commands_tables_and_links() -> None:
    chinese, english = (shape((PROJECT / name).read_text()) for name in ("README.zh-CN.md", "README.md"))
    assert chinese == english


@pytest.mark.parametrize(
    ("place", "changed"),
    [
        ("commands", "```sh\n./nodewright up --nodes 3  # drei\n```"),
        ("figures of the tables", "| a | 1.5 s |"),
        ("headings", "## a\n"),
        ("links", "[a](docs/b.md)"),
        ("pictures", "```mermaid\n```"),
    ],
)
def test_a_translation_that_fell_behind_is_seen(place: str, changed: str) -> None:
    page = "# a\n```sh\n./nodewright up  # two\n```\n| a | 1.2 s |\n\n[a](docs/a.md)\n"
    assert shape(page) == shape(page.replace("two", "deux"))
    behind = {key for key, value in shape(page + changed).items() if value != shape(page)[key]}
    assert behind == {place}


# --- the reading of pages, on a small one ----------------------------------------------------------------------------


def test_commands_are_read_as_they_are_typed() -> None:
    page = """
```console
$ ./nodewright up --nodes 3   # three of them
Cluster lab: 3 nodes Ready
# NAME=x ./nodewright why -o json | head -1
```
   ```sh
   # only words
   ./nodewright status &&
     source <(./nodewright completion bash) && kubectl label node x 'a=b  # c'
   ```
```yaml
./nodewright nothing
```
"""
    first, second, third = commands("page.md", page)
    assert (first.block, first.text) == (0, "./nodewright up --nodes 3")
    assert (first.not_run != "", second.not_run, third.not_run) == (True, "", "")
    assert list(second.ours) == [["why", "-o", "json"]]
    assert third.block == 1
    assert list(third.ours) == [["status"], ["completion", "bash"]]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("up --nodes 3 --proxy-mode nftables", ""),
        ("up --nodes many", "--nodes"),
        ("up --no-such", "--no-such"),
        ("nosuch", "no such command"),
        ("node nosuch", "no such command"),
        ("trace one", "TO[:PORT]"),
        ("why --help", ""),
        ("--version", ""),
        ("kubectl get pods -o wide --no-headers", ""),
        ("shell node1 -- ctr images ls", ""),
        ("completion tcsh", "tcsh"),
    ],
)
def test_a_command_is_refused_as_a_user_would_be(line: str, said: str) -> None:
    found = refused(line.split())
    assert (found == "") == (said == "") and said in found
