"""Removes seeds of containerd's root that no run has used for days; each change of images or containerd leaves one.

Running clusters lose nothing: their nodes have their own links to the files (or copies) and their own databases.
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
    """Remove every seed that was last used more than KEPT seconds before `now` (wall clock) and is not in use.

    Their locks are removed too, and whatever killed runs have left. Returns the names of the seeds.
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
            # Checked again: whoever held the lock until now has used the seed.
            if ours and _is_old(seed, now) and _remove(seed):
                removed.append(seed.name)
    return removed


def _remove(seed: Path) -> bool:
    """Rename it first, so that nobody finds a half-removed seed.

    False when it cannot be renamed: it stays complete for the next run, and this run does not fail because of it.
    """
    renamed = seed.with_name(f"{_GONE}{seed.name}")
    shutil.rmtree(renamed, ignore_errors=True)
    try:
        seed.rename(renamed)
    except OSError as error:
        log.warning("%s is unused but cannot be removed: %s", seed, error)
        return False
    shutil.rmtree(renamed, ignore_errors=True)
    return True


def _is_old(path: Path, now: float) -> bool:
    try:
        return now - path.stat().st_mtime > KEPT
    except FileNotFoundError:
        return False
