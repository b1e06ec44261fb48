"""The error of cgroups."""

from __future__ import annotations

from nodelib.errors import Temporary


class CgroupError(Temporary):
    """A cgroup that could not be created, written or removed; names path, file and cause."""


def failure(path: str, step: str, error: OSError, action: str) -> CgroupError:
    return CgroupError(error.strerror or str(error), obj=path, step=step, action=action)
