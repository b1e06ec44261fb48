"""SELinux of this machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Selinux:
    """SELinux is enabled, enforcing or not. `files`: the context that the policy gives to files of containers.

    "" where the policy has none: then no volume is mounted with a context.
    """

    files: str = ""
