"""How help looks: no Python types, an option beside the name of its value, whole words at 80 columns."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from typer.core import TyperCommand, TyperGroup

from cli import kubectl_words
from cli.display.quiet import quietly
from cli.options.conversion import converted_on_demand

_LAUNCHER = "./nodewright"  # as help texts are written
_called = _LAUNCHER
# What kind, k3d and minikube call it.
_ELSEWHERE = {
    "create": "`./nodewright up` creates a cluster",
    "delete": "`./nodewright down` removes a cluster, `./nodewright node remove` a node",
    "get": "`./nodewright clusters` lists clusters, `./nodewright kubectl get` what is in one",
    "list": "`./nodewright clusters` lists clusters",
    "ls": "`./nodewright clusters` lists clusters",
    "logs": "`./nodewright export logs` collects them, `./nodewright kubectl logs` shows those of a pod",
}


def called_as(program: str) -> None:
    """From now on help names the program like this: before it is laid out, since the name's length counts."""
    global _called
    _called = program


class PlainGroup(TyperGroup):
    """A group of commands with plain help."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        _name_program(self)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0] if args else ""
        if ctx.parent is None and word in _ELSEWHERE and self.get_command(ctx, word) is None:
            ctx.fail(f"No such command '{word}': {_ELSEWHERE[word]}.")
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

    def get_params(self, ctx: Any) -> list[Any]:
        return converted_on_demand(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        # typer writes brackets around an argument that may be left out, also if its name has them already.
        pieces = super().collect_usage_pieces(ctx)
        return [one[1:-1] if one.startswith("[[") and one.endswith("]]") else one for one in pieces]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        TyperCommand.format_help(_on_paper(self, ctx), ctx, formatter)


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
