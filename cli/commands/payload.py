"""`nodewright payload`: gathers all that a machine without internet access needs."""

from __future__ import annotations

import sys
from pathlib import Path

from cli.display.steps import Display
from cli.errors import need_checkout
from cli.project import PROJECT
from controlplane.host.work import payload


def run(folder: Path, *, binaries: Path | None, plain: bool) -> None:
    """Write the folder and print its size."""
    need_checkout("payload")
    with Display(plain=plain or None) as display:
        payload.write(folder, PROJECT, sys.executable, binaries, display)
    if display.quiet:
        return
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.0f} MB. Copy it to the machine that has no internet access.")
