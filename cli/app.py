"""The application `nodewright`: importing a module of options adds its commands, in the order of the help."""

from __future__ import annotations

import os

from cli.options import cluster, diagnosis, files, members, nodes, testing
from cli.options.application import app

__all__ = ["app", "cluster", "diagnosis", "files", "members", "nodes", "testing"]


def main() -> int:
    """Run the command line; typer ends the process with the command's exit status."""
    if "_NODEWRIGHT_COMPLETE" in os.environ:
        from typer._completion_classes import completion_init

        completion_init()  # typer does it itself only for applications with --install-completion
    app(prog_name="nodewright")
    return 0
