"""How help looks: no Python types, an option beside the name of its value, whole words at 80 columns."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from typer._click.exceptions import NoSuchOption, UsageError
from typer.core import TyperCommand, TyperGroup

from cli import kubectl_words
from cli.display.quiet import quietly
from cli.options.conversion import converted_on_demand
from cli.options.other_tools import pointer

_LAUNCHER = "./nodewright"  # as help texts are written
_called = _LAUNCHER


def called_as(program: str) -> None:
    """From now on help names the program like this: before it is laid out, since the name's length counts."""
    global _called
    _called = program


class PlainGroup(TyperGroup):
    """A group of commands with plain help."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        _name_program(self)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            _show_help(ctx)
        try:
            return super().parse_args(ctx, args)
        except NoSuchOption as error:
            if error.option_name == "--name":
                error.message += ". It comes after the command, as in `./nodewright status --name NAME`"
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0] if args else ""
        if self.get_command(ctx, word) is None:
            if word == "help" and not args[1:]:
                _show_help(ctx)
            if word == "help":
                return super().resolve_command(ctx, [*args[1:], "--help"])
            if said := pointer(ctx.command_path.partition(" ")[2], word):
                ctx.fail(f"No such command '{word}': {said}.")
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        return converted_on_demand(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        TyperGroup.format_help(_on_paper(self, ctx), ctx, formatter)


class PlainCommand(TyperCommand):
    """A command with plain help. Whoever takes --plain, because it shows progress, takes --quiet too."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for place, one in enumerate(list(self.params)):
            if "--plain" in one.opts and self.callback is not None:
                self.params.insert(place + 1, _quiet_beside(one))
                self.callback = _quietly(self.callback)
        _name_program(self)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            if _names_cluster(self, error):
                error.message += ". A cluster is chosen by --name NAME"
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        return converted_on_demand(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        # typer writes brackets around an argument that may be left out, also if its name has them already or is hidden.
        pieces = (one for one in super().collect_usage_pieces(ctx) if one != "[]")
        return [one[1:-1] if one.startswith("[[") and one.endswith("]]") else one for one in pieces]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        TyperCommand.format_help(_on_paper(self, ctx), ctx, formatter)


def _show_help(ctx: Any) -> None:
    """Print the help and end the command."""
    print(ctx.get_help())
    ctx.exit()


def _names_cluster(command: Any, error: UsageError) -> bool:
    """Whether a word too many may be the name of a cluster: the command takes no words."""
    takes_words = any(one.param_type_name == "argument" for one in command.params)
    named = any("--name" in one.opts for one in command.params)
    return named and not takes_words and error.message.startswith("Got unexpected extra argument")


def _name_program(command: Any) -> None:
    for one in (command, *command.params):
        for place in ("help", "short_help", "epilog"):
            text = getattr(one, place, None)
            if isinstance(text, str):
                setattr(one, place, text.replace(_LAUNCHER, _called))


def _quiet_beside(plain: Any) -> Any:
    """The option --quiet: a flag like --plain."""
    quiet = copy.copy(plain)
    quiet.name, quiet.opts = "quiet", ["--quiet", "-q"]
    quiet.help = "Show no progress and no hints: only errors, and what was asked for."
    return quiet


def _quietly(callback: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, quiet: bool, **options: Any) -> Any:
        with quietly(quiet):
            return callback(*arguments, **options)

    return run


def _on_paper(command: Any, ctx: Any) -> Any:
    """A copy of the command for its help: typer has no settings for what its table of options shows."""
    shown = copy.copy(command)
    parameters = [_as_shown(one) for one in command.get_params(ctx)]
    vars(shown)["get_params"] = lambda ctx: parameters
    return shown


def _as_shown(parameter: Any) -> Any:
    """A copy that names an option's value beside the option: a column of its own would leave little for the text."""
    shown = copy.copy(parameter)
    vars(shown)["display_type_rich"] = lambda ctx: ""
    if parameter.param_type_name == "argument":
        return shown
    spelled = ", ".join(sorted(parameter.opts, key=len))
    value = "" if parameter.is_flag else str(parameter.metavar or "")
    shown.opts = [" ".join(filter(None, (" / ".join((spelled, *parameter.secondary_opts)), value)))]
    shown.secondary_opts = []
    vars(shown)["_get_default_string"] = parameter._get_default_string  # it reads both kinds of spellings
    shown.help = " ".join(filter(None, (parameter.help, _range(parameter.min, parameter.max))))
    shown.min = shown.max = None
    return shown


def _range(least: float | None, most: float | None) -> str:
    """The numbers that an option takes, in words."""
    if least is None or (least == 0 and most is None):
        return ""
    return f"At least {least}." if most is None else f"From {least} to {most}."


class KubectlCommand(PlainCommand):
    """A command that keeps its own options and passes all others on, in their order."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "VERB [ARGS]..."]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ours, theirs = kubectl_words.split(args)
        super().parse_args(ctx, ours)
        ctx.args = theirs
        return theirs
