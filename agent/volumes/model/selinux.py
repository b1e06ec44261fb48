"""SELinux contexts that volumes are mounted with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Context:
    """How a pod needs a volume. `wanted`: the context of its files for the pod, "": any; `mounted`: the mount option.

    The two differ where a volume's access modes are not mounted with contexts (gate SELinuxMount).
    """

    wanted: str = ""
    mounted: str = ""
