"""Writes the content of an xz file to standard output: `python -I -S unxz.py FILE`. A machine may have no xz."""

from __future__ import annotations

import lzma
import shutil
import sys

SUFFIX = ".xz"


def unxz() -> list[str]:
    """The command, without the file."""
    return [sys.executable, "-I", "-S", __file__]


if __name__ == "__main__":
    with lzma.open(sys.argv[1]) as packed:
        shutil.copyfileobj(packed, sys.stdout.buffer, 1 << 20)
