"""The application `nodewright`: importing a module of options adds its commands, in the order of the help."""

from __future__ import annotations

from cli.options import cluster, diagnosis, nodes, testing
from cli.options.application import app

__all__ = ["app", "cluster", "diagnosis", "nodes", "testing"]


def main() -> int:
    """Run the command line; typer ends the process with the command's exit status."""
    app(prog_name="nodewright")
    return 0
