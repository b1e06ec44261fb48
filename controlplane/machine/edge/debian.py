"""Debian packages of this machine: which are missing, and installing them, as the launcher of a source tree does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from controlplane.progress import Progress
from nodelib.command import CommandError, run_sync
from nodelib.errors import Permanent

_APT = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0")
_NOT_KEPT = ("-o", "APT::Keep-Downloaded-Packages=false")
_TIMEOUT = 900.0
_LISTS = Path("/var/lib/apt/lists")


def missing(names: Iterable[str]) -> list[str]:
    """Those that are not installed; none on a machine without dpkg."""
    wanted = list(names)
    if not wanted or not shutil.which("dpkg-query"):
        return []
    asked = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted]
    rows = (line.split() for line in run_sync(asked, check=False).text.splitlines())
    there = {row[0] for row in rows if row[1:] == ["installed"]}
    return [name for name in wanted if name not in there]


def install_missing(names: Iterable[str], progress: Progress, record: Path) -> None:
    """Install those that are missing, without asking, and add them to the file `record`. Blocking.

    Raises Permanent when apt cannot: with its last lines.
    """
    lacking = missing(names)
    if not lacking:
        return
    with progress.step("Debian packages") as say:
        say(f"installing {', '.join(lacking)}")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = [*_APT, *_NOT_KEPT, "install", "--no-install-recommends", *lacking]
        try:
            if not list(_LISTS.glob("*_Packages*")):
                run_sync([*_APT, "update"], timeout=_TIMEOUT, env=environment)
            if run_sync(install, timeout=_TIMEOUT, env=environment, check=False).returncode != 0:
                say("the package lists may be out of date: updating them")
                run_sync([*_APT, "update"], timeout=_TIMEOUT, env=environment)
                run_sync(install, timeout=_TIMEOUT, env=environment)
        except CommandError as error:
            raise Permanent(
                error.stderr.decode(errors="replace").strip()[-800:] or error.message,
                obj=", ".join(lacking),
                step="install Debian packages",
                action=f"Run `apt-get install {' '.join(lacking)}` and read its messages.",
            ) from error
        record.parent.mkdir(parents=True, exist_ok=True)
        with record.open("a", encoding="utf-8") as file:  # `uninstall --purge` names them
            file.write("".join(f"{name}\n" for name in lacking))
        say(f"{len(lacking)} installed")
