"""Options that many commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.options.choices import Output
from nodelib.errors import Invalid

DEFAULT = "nodewright"


def _clusters(incomplete: str) -> list[str]:
    """Names for the shell's completion; nothing is said about a directory that cannot be read."""
    from controlplane.cluster.edge import state

    try:
        return [name for name in state.clusters() if name.startswith(incomplete)]
    except OSError:
        return []


def _meant(context: typer.Context, name: str) -> str:
    given = context.get_parameter_source("name")
    if context.resilient_parsing:
        return name
    if given is None or given.name != "DEFAULT":
        return _possible(name)
    from cli.clusters import meant

    return meant(name)


def _possible(name: str) -> str:
    """Raises BadParameter for what no cluster can be called, as for any other wrong value of an option."""
    from controlplane.cluster.plan.addresses import check_name

    try:
        return check_name(name)
    except Invalid as error:
        raise typer.BadParameter(error.message) from None


def given_name(context: typer.Context) -> str:
    """What `--name` says, "" without it. For commands that make something with a name of its own: without the option,
    the name is that of NODEWRIGHT_NAME or of the only cluster on this machine."""
    source = context.get_parameter_source("name")
    return str(context.params["name"]) if source is not None and source.name == "COMMANDLINE" else ""


Name = Annotated[
    str,
    typer.Option(
        "--name",
        metavar="NAME",
        envvar="NODEWRIGHT_NAME",
        autocompletion=_clusters,
        help="The cluster on this machine; by default the only one there is, or the one called nodewright.",
        show_default=False,
        callback=_meant,
    ),
]
NewName = Annotated[
    str,
    typer.Option(
        "--name",
        metavar="NAME",
        envvar="NODEWRIGHT_NAME",
        help="The cluster's name: up to 12 characters of a-z, 0-9 and '-'.",
        callback=_possible,
    ),
]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of names that are given without one.")
]
Plain = Annotated[bool, typer.Option("--plain", help="Print plain lines instead of a live display.")]
OutputOption = Annotated[
    Output, typer.Option("--output", "-o", metavar="FORMAT", help="How to show it: text, or json for scripts.")
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Follow what changes, until Ctrl-C.")]
Json = Annotated[bool, typer.Option("--json", hidden=True, help="The older spelling of -o json.")]
Binaries = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Use the binaries in this directory (official releases) instead of building.",
    ),
]
ReleaseFolder = Annotated[
    Path | None,
    typer.Option(
        "--release",
        metavar="DIR",
        envvar="NODEWRIGHT_RELEASE",
        help="Take the programs from the release in this directory (its wheels) instead of building.",
    ),
]


def wants_json(output: Output, as_json: bool) -> bool:
    """Whether either spelling asks for JSON."""
    return as_json or output is Output.JSON
