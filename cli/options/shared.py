"""Options that many commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT = "nodewright"
Name = Annotated[
    str,
    typer.Option(
        "--name",
        metavar="NAME",
        envvar="NODEWRIGHT_NAME",
        help="The cluster on this machine: up to 12 characters of a-z, 0-9 and '-'.",
    ),
]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of names that are given without one.")
]
Plain = Annotated[bool, typer.Option("--plain", help="Print plain lines instead of a live display.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Binaries = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Use the binaries in this directory (official releases) instead of building."),
]
