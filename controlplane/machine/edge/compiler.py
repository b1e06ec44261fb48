"""The C compiler and the libraries that building needs: for parts of Go programs, and for images."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from nodelib.command import CommandError, run_sync

COMPILER_PACKAGES = (  # those of packages.txt that only a build needs
    "bzip2",
    "gcc",
    "libc6-dev",
    "libseccomp-dev",
    "make",
    "pkg-config",
)
_PROGRAMS = ("bzip2", "gcc", "make", "pkg-config")
_LIBRARIES = ("lib/*/libc.a", "include/seccomp.h")  # the static one, for images


def need_compiler(progress: Callable[[str], None]) -> None:
    """Install with apt what is missing of COMPILER_PACKAGES. Raises CommandError."""
    if all(map(shutil.which, _PROGRAMS)) and all(list(Path("/usr").glob(pattern)) for pattern in _LIBRARIES):
        return
    progress(f"installing {', '.join(COMPILER_PACKAGES)}")
    argv = ["apt-get", "-y", "-q", "install", "--no-install-recommends", *COMPILER_PACKAGES]
    try:
        run_sync(argv, timeout=900)
    except CommandError:
        run_sync(["apt-get", "-q", "update"], timeout=300)
        run_sync(argv, timeout=900)
