"""`nodewright package`: builds a Debian package."""

from __future__ import annotations

import sys
from pathlib import Path

from cli.display.steps import Display
from cli.errors import need_checkout
from cli.project import PROJECT
from controlplane.host.work import package


def run(folder: Path, *, plain: bool) -> None:
    """Write the package into `folder` and print how to install it."""
    need_checkout("package")
    with Display(plain=plain or None) as display:
        made = package.write(folder, PROJECT, sys.executable, display)
    print(
        made
        if display.quiet
        else f"{made}\nInstall it on the machine that becomes a node: apt-get install ./{made.name}"
    )
