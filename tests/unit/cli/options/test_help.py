"""Every help as it looks on a terminal of 80 columns: whole words, no Python types, and what users must know."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from cli.app import app

_ROOT: Any = typer.main.get_command(app)
_OWN_HELP = (
    "agent",
    "kubelet",
    "kube-proxy",
    "loadbalancer",
    "proxy",
)  # upstream's flags, printed by the daemons themselves


def _every(command: Any, *path: str) -> dict[tuple[str, ...], Any]:
    """Each command with the words that lead to it; groups too."""
    found = {path: command}
    for name, inner in getattr(command, "commands", {}).items():
        found |= _every(inner, *path, name)
    return found


EVERY = {path: command for path, command in _every(_ROOT).items() if path[:1] not in [(name,) for name in _OWN_HELP]}
_narrow = pytest.mark.parametrize("path", EVERY, ids=lambda path: " ".join(path) or "nodewright")


def shown(path: tuple[str, ...]) -> str:
    """The help on a terminal of 80 columns."""
    done = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return done.output


def _words(text: str) -> list[str]:
    """Words as they are printed: without the marks of Markdown."""
    return re.sub(r"[`*]", "", text).split()


@_narrow
def test_no_word_is_broken_or_cut_at_80_columns(path: tuple[str, ...]) -> None:
    text = shown(path)
    there = set(re.sub(r"[│╭╰─╮╯•]", " ", text).split())
    assert "…" not in text
    command = EVERY[path]
    wanted = _words(command.help or "")
    for one in command.params:
        if getattr(one, "hidden", False):
            continue
        wanted += [*one.opts, *one.secondary_opts] if one.param_type_name == "option" else []
        wanted += [*_words(one.help or ""), one.metavar or ""]
    for inner in getattr(command, "commands", {}).values():
        wanted += [inner.name, *_words((inner.help or "").partition("\n\n")[0])]
    parts = {piece for word in there for piece in (word, *word.split(","), word.strip(".:"))}
    assert [word for word in wanted if word and word not in parts and word.strip(".:") not in parts] == []


@_narrow
def test_no_line_is_longer_than_the_terminal(path: tuple[str, ...]) -> None:
    assert [line for line in shown(path).splitlines() if len(line) > 80] == []


@_narrow
def test_help_that_takes_a_clusters_name_says_which_is_meant_or_what_it_may_be(path: tuple[str, ...]) -> None:
    text = re.sub(r"[│\s]+", " ", shown(path))
    named = "by default the only one there is" in text or "up to 12 characters of a-z, 0-9 and '-'" in text
    assert ("--name " in text.partition("Options")[2]) == named


@_narrow
def test_commands_that_show_progress_can_be_quiet(path: tuple[str, ...]) -> None:
    options = {option for one in EVERY[path].params for option in one.opts}
    assert ("--plain" in options) == ("--quiet" in options)


@pytest.mark.parametrize("command", ["status", "why", "view"])
def test_what_goes_on_until_ctrl_c_can_be_plain(command: str) -> None:
    assert "--plain" in {option for one in EVERY[(command,)].params for option in one.opts}


def test_the_help_of_test_says_what_our_tiers_are_before_it_speaks_of_pytest() -> None:
    text = shown(("test",))
    assert text.index("tier by tier") < text.index("contracts:") < text.index("pytest")
    assert "Options of pytest" in text


def test_the_help_says_what_exit_statuses_mean() -> None:
    text = re.sub(r"[│\s]+", " ", shown(()))
    for words in ("0: done", "1: failed", "2: the command line is wrong", "130: interrupted"):
        assert words in text


@pytest.mark.parametrize(
    ("path", "usage"),
    [
        (("kubectl",), "kubectl [OPTIONS] VERB [ARGS]..."),
        (("node", "add"), "node add [OPTIONS] [NODE] "),
        (("why",), "why [OPTIONS] [[KIND/]NAME] "),
    ],
)
def test_the_usage_says_what_may_follow(path: tuple[str, ...], usage: str) -> None:
    assert usage in shown(path)
