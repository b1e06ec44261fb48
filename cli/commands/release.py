"""`nodewright release`: makes what the project publishes."""

from __future__ import annotations

import sys
from pathlib import Path

from cli.display.steps import Display
from cli.errors import need_checkout
from cli.project import PROJECT
from controlplane.release import work


def run(folder: Path, *, plain: bool) -> None:
    """Write the release into `folder` and print its files."""
    need_checkout("release")
    with Display(plain=plain or None) as display:
        made = work.write(work.Order(folder, PROJECT, sys.executable), display)
    for path in made:
        print(f"{path.stat().st_size:>12,}  {path}" if not display.quiet else path)
    if not display.quiet:
        print(f"\nTry it: pip install --no-index --find-links {folder} nodewright nodewright-binaries")
