"""The command line: importing a table puts its commands into the application, in the order of the help."""

from __future__ import annotations

from cli import cluster_commands, node_commands, suite_commands
from cli.root import app

__all__ = ["app", "cluster_commands", "node_commands", "suite_commands"]


def main() -> int:
    """Exit status as typer gives it."""
    app(prog_name="nodewright")
    return 0
