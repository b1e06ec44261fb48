"""The application `nodewright`: importing a module of options adds its commands, in the order of the help."""

from __future__ import annotations

import io
import os
import shutil
import sys
from typing import Any

from cli.command_line import program
from cli.options import cluster, diagnosis, files, members, nodes, policies, testing, use
from cli.options.application import app, with_only
from cli.options.plain_help import called_as
from cli.project import is_checkout

__all__ = ["app", "cluster", "diagnosis", "files", "members", "nodes", "policies", "testing", "use"]


def main() -> int:
    """Run the command line; typer ends the process with the command's exit status."""
    if "_NODEWRIGHT_COMPLETE" in os.environ:
        from typer._completion_classes import completion_init

        completion_init()  # typer does it itself only for applications with --install-completion
    if not is_checkout():
        called = "nodewright" if shutil.which("nodewright") == shutil.which(program()) else program()
        called_as(called)
        sys.stdout, sys.stderr = (_Renamed(one, called) for one in (sys.stdout, sys.stderr))
    with_only(sys.argv[1] if sys.argv[1:] else "")(prog_name="nodewright")
    return 0


class _Renamed(io.TextIOWrapper):
    """Standard output or error of what pip installed: help and advice name the launcher of a source tree."""

    def __init__(self, below: Any, called: str) -> None:
        super().__init__(below.buffer, below.encoding, below.errors, line_buffering=below.line_buffering)
        self._called = called

    def write(self, text: str) -> int:
        return super().write(text.replace("./nodewright", self._called))
