"""`nodewright uninstall --purge`: removes what nodewright keeps on this machine, after showing it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from cli.commands.install import uninstall
from cli.project import PROJECT
from controlplane.cluster.advice import line
from controlplane.cluster.edge import state
from controlplane.cluster.edge.roots import cache_root
from controlplane.host.plan.host_files import RECORD
from nodelib.errors import Conflict, Invalid, WrongUsage
from nodelib.files import no_link
from nodelib.text import one_line

_PACKAGES = "debian-packages"
_MOST_PACKAGES = 1 << 16  # bytes
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{1,99}")  # Debian policy 5.6.1
# Only what nodewright itself puts into its cache: NODEWRIGHT_CACHE may name a directory that has other things, too.
_OURS = {
    "venv": "Python environments, and the Go toolchain if it was fetched",
    "bin": "binaries",
    "go-build": "what the Go compiler keeps",
    "go-mod": "source code of Go modules",
    "images": "container images",
    "seeds": "prepared stores of containerd",
    "debs": "Debian packages that images are made of",
    "package": "parts of the Debian package",
    "release": "parts of a release",
    "conformance": "results of upstream's suites",
    _PACKAGES: "names of the Debian packages that were installed",
}


def run(root: str, *, yes: bool) -> None:
    """Show what goes, ask, and remove it. Exit status 1 if the answer is no.

    Raises Conflict while there are clusters, Invalid without a terminal to ask on and for a directory of others.
    """
    if os.path.abspath(root) != "/":
        raise WrongUsage("--purge is for this machine only", obj=f"--root {root}", action="Leave one of them out.")
    if there := state.clusters():
        raise Conflict(
            "these clusters use the cache",
            obj=", ".join(there),
            step="uninstall --purge",
            action=" && ".join(f"`sudo {line(name, 'down')}`" for name in there),
        )
    cache = Path(cache_root())
    _refuse_of_others(cache)
    going = [cache / name for name in _OURS if os.path.lexists(cache / name)]
    installed = Path(RECORD).exists()
    packages = _packages(cache)
    if not going and not installed:
        print(f"Nothing to remove: {cache} has nothing of ours, and nothing is installed on this host.")
        return
    for path in going:
        print(f"{path}  {_size(path) / 1e6:.0f} MB: {_OURS[path.name]}")
    if installed:
        print("what `install` wrote on this host (commands, units, sysctls)")
    if not yes and not _agreed():
        raise SystemExit(1)
    if installed:
        uninstall("/")
    # The environment that runs this goes last, once nothing more is imported from it.
    for path in reversed(going):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        print(f"removed {path}")
    if cache.is_dir() and not any(cache.iterdir()):
        cache.rmdir()
    elif cache.is_dir():
        print(f"kept {cache}: it holds {', '.join(sorted(one.name for one in cache.iterdir())[:10])}")
    if packages:
        print(f"Debian packages that were installed for it and stay: apt-get remove {' '.join(packages)}")


def _refuse_of_others(cache: Path) -> None:
    """Raises Invalid for NODEWRIGHT_CACHE=/usr/local and the like, whose bin is not ours: names alone do not tell."""
    try:
        others = sorted(one.name for one in cache.iterdir() if one.name not in _OURS)
    except FileNotFoundError:
        return
    holds_project = Path(os.path.realpath(cache)) in (PROJECT, *PROJECT.parents)
    if not holds_project and (not others or cache.name.startswith("nodewright")):
        return
    what = "the project itself" if holds_project else one_line(", ".join(others[:5]), 200)
    raise Invalid(
        f"it also holds {what}, so it is not known what in it is ours, and nothing was removed",
        obj=str(cache),
        step="uninstall --purge",
        action="Remove what is nodewright's by hand; then run this with another NODEWRIGHT_CACHE.",
    )


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise Invalid(
            "there is no terminal to ask on, so nothing was removed", step="uninstall --purge", action="Add --yes."
        )
    return input("Remove all of this? [y/N] ").strip().lower() in ("y", "yes")


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(map(_bytes, (os.path.join(folder, name) for folder, _, files in os.walk(path) for name in files)))


def _bytes(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def _packages(cache: Path) -> list[str]:
    try:
        with open(cache / _PACKAGES, "rb", opener=no_link) as file:
            words = file.read(_MOST_PACKAGES).decode(errors="replace").split()
    except OSError:
        return []
    return sorted({word for word in words if _PACKAGE.fullmatch(word)})
