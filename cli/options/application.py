"""The typer application: how commands are added to it, how help looks, and `--version`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

_Command = TypeVar("_Command", bound=Callable[..., None])


class PlainGroup(TyperGroup):
    """The application; its help shows no Python types."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class PlainCommand(TyperCommand):
    """A command; its help shows no Python types."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


def _without_types(parameters: Iterable[Any]) -> list[Any]:
    # typer has no setting for this: it writes <bool> beside a flag, <list[Path]> beside an argument.
    found = list(parameters)
    for one in found:
        vars(one)["display_type_rich"] = partial(_value_name, one)
    return found


def _value_name(parameter: Any, ctx: Any) -> str:
    if parameter.param_type_name == "argument" or parameter.is_flag:
        return ""
    return str(parameter.metavar or "")


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
        "Start here: `./nodewright up`, then `./nodewright kubectl -- get pods -A`, then `./nodewright down`."
    ),
)

PASS = {"allow_extra_args": True, "ignore_unknown_options": True}


def command(
    panel: str, *, name: str | None = None, settings: dict[str, Any] | None = None
) -> Callable[[_Command], _Command]:
    """Decorator that adds a command, listed under `panel` in the help. `settings` are typer's context settings."""
    return app.command(name, cls=PlainCommand, rich_help_panel=panel, context_settings=settings)


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
            help="Show the versions of nodewright, Kubernetes and Python, then exit.",
        ),
    ] = False,
) -> None:
    """Options before any command; the help text is the application's."""
