"""Every command that shows facts takes `-o json`; `--json`, the older spelling, still works and is in no help."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cli.app import app
from cli.options import shared
from cli.options.choices import Output

RUNNER = CliRunner()
COMMANDS: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
_NO_FACTS = ("completion", "export", "view")
FACTS = [
    path
    for name, one in COMMANDS.items()
    if getattr(one, "rich_help_panel", "") == "Diagnosis" and name not in _NO_FACTS
    for path in ([f"{name} {part}" for part in one.commands] if hasattr(one, "commands") else [name])
]


def option(command: str, name: str) -> Any:
    """The option of that spelling, None if the command has none."""
    first, *rest = command.split()
    found = COMMANDS[first]
    for part in rest:
        found = found.commands[part]
    return next((one for one in found.params if name in one.opts), None)


def test_there_are_commands_that_show_facts() -> None:
    assert {"status", "why", "doctor", "images", "trace", "service", "version"} <= set(FACTS)


@pytest.mark.parametrize("command", FACTS)
def test_a_command_that_shows_facts_takes_o_json(command: str) -> None:
    found = option(command, "-o")
    assert found is not None and "--output" in found.opts and not found.hidden
    done = RUNNER.invoke(app, [*command.split(), *("x" for _ in range(2)), "-o", "csv"])
    assert done.exit_code == 2 and "'csv' is not one of" in done.output and "'json'" in done.output
    done = RUNNER.invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"})
    assert "--output" in done.output and "json" in done.output


@pytest.mark.parametrize("command", FACTS)
def test_the_older_spelling_works_there_too(command: str) -> None:
    assert option(command, "--json") is not None


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_no_help_shows_two_spellings(command: str) -> None:
    """Of the whole table, so that a new command does not bring the old spelling back."""
    old = option(command, "--json")
    assert old is None or (old.hidden and option(command, "-o") is not None)


@pytest.mark.parametrize(
    ("output", "as_json", "wanted"),
    [(Output.TEXT, False, False), (Output.JSON, False, True), (Output.TEXT, True, True), (Output.JSON, True, True)],
    ids=["neither", "-o json", "--json", "both"],
)
def test_either_spelling_asks_for_json(output: Output, as_json: bool, wanted: bool) -> None:
    assert shared.wants_json(output, as_json) is wanted


@pytest.mark.parametrize("spelling", [["-o", "json"], ["--output", "json"], ["--json"]], ids=" ".join)
def test_version_as_json(spelling: list[str]) -> None:
    done = RUNNER.invoke(app, ["version", *spelling])
    assert done.exit_code == 0 and done.output.startswith("{") and '"kubernetes"' in done.output
