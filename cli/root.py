"""The application and the options that many commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="nodewright",
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

Name = Annotated[str, typer.Option("--name", help="Which cluster of this machine.", envvar="NODEWRIGHT_NAME")]
Plain = Annotated[bool, typer.Option("--plain", help="Plain lines instead of a live display.")]
Binaries = Annotated[
    Path | None,
    typer.Option(help="Take binaries of these names from here instead of building them (official releases)."),
]
DEFAULT = "nodewright"
