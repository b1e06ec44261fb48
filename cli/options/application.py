"""The typer application: how commands are added to it, how help looks, and `--version`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from typer.main import get_command_name

from cli.options.plain_help import PlainCommand as PlainCommand
from cli.options.plain_help import PlainGroup as PlainGroup

_Command = TypeVar("_Command", bound=Callable[..., None])


app = typer.Typer(
    name="nodewright",
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Real Kubernetes nodes in Python, and a whole cluster of them on one machine.\n\n"
        "Start here: `./nodewright up`, then `./nodewright kubectl get pods -A`, then `./nodewright down`."
    ),
    epilog=(
        "Exit status: 0: done. 1: failed, or what was looked at is not well. 2: the command line is wrong. "
        "130: interrupted. docs/exit-status.md has the rest."
    ),
)

PASS = {"allow_extra_args": True, "ignore_unknown_options": True}


def command(
    panel: str,
    *,
    name: str | None = None,
    settings: dict[str, Any] | None = None,
    cls: type[PlainCommand] = PlainCommand,
) -> Callable[[_Command], _Command]:
    """Decorator that adds a command, listed under `panel` in the help. `settings` are typer's context settings."""
    return app.command(name, cls=cls, rich_help_panel=panel, context_settings=settings)


def with_only(word: str) -> typer.Typer:
    """The application with nothing but the command `word`, with all commands if there is none of that name.

    typer builds whatever an application has, which takes 40 ms for all commands.
    """
    commands = [
        one
        for one in app.registered_commands
        if one.callback is not None and word == (one.name or get_command_name(one.callback.__name__))
    ]
    groups = [one for one in app.registered_groups if one.name == word]
    if not commands and not groups:
        return app
    lone = copy.copy(app)
    lone.registered_commands, lone.registered_groups = commands, groups
    return lone


def _show_versions(asked: bool) -> None:
    if asked:
        from cli import versions

        print("\n".join(versions.lines()))
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_show_versions,
            help="Show the versions of nodewright and its parts, then exit.",
        ),
    ] = False,
) -> None:
    """Options before any command; the help text is the application's."""
