"""Removes seeds of containerd's root that no run has used for days: each change of the set-up leaves one behind.

A standing cluster loses nothing: its nodes have names of their own for the files (hard links, or copies), and the
databases are their own.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from controlplane.machine.edge.locks import unused

log = logging.getLogger(__name__)

KEPT = 3 * 24 * 3600.0  # seconds since the last use
WORK = ".work-"  # prefix of folders that are being filled
_GONE = ".gone-"


def remove_unused(seeds: Path, now: float) -> list[str]:
    """Every seed that was last used more than KEPT seconds before `now` (wall seconds) and is not in use; their names.

    With their locks, and with what runs that were killed have left.
    """
    for left in [*seeds.glob(f"{WORK}*"), *seeds.glob(f"{_GONE}*")]:
        if _is_old(left, now):
            shutil.rmtree(left, ignore_errors=True)
    removed = []
    for lock in sorted(seeds.glob("*.lock")):
        seed = lock.with_suffix("")
        if not _is_old(seed if seed.exists() else lock, now):
            continue
        with unused(lock) as ours:
            # Looked at again: whoever held the lock until now has used it.
            if ours and _is_old(seed, now) and _remove(seed):
                removed.append(seed.name)
    return removed


def _remove(seed: Path) -> bool:
    """Under another name first: nobody may find it half removed. False when it cannot have one: it stays whole, for
    whoever comes next; no run fails for want of tidiness."""
    aside = seed.with_name(f"{_GONE}{seed.name}")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        seed.rename(aside)
    except OSError as error:
        log.warning("%s is not used and cannot be removed: %s", seed, error)
        return False
    shutil.rmtree(aside, ignore_errors=True)
    return True


def _is_old(path: Path, now: float) -> bool:
    try:
        return now - path.stat().st_mtime > KEPT
    except FileNotFoundError:
        return False
