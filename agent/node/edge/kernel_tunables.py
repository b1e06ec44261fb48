"""The kernel's tunables that a kubelet wants: checked with protectKernelDefaults, set without it.

Follows setupKernelTunables of pkg/kubelet/cm/container_manager_linux.go, with one difference: a tunable that cannot be
set (a container with a read-only /proc/sys) is reported and does not keep the agent from starting, since pods run
without it too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from nodelib.errors import Permanent
from nodelib.kernel_tunables import KERNEL_TUNABLES

log = logging.getLogger(__name__)


def apply_tunables(*, protect: bool, root: str = "/proc/sys") -> list[str]:
    """Check them all (`protect`), or set those that differ; one line for each that could not be set.

    Raises Permanent, which names every one that differs, when they are protected.
    """
    found = {name: _read(os.path.join(root, name)) for name in KERNEL_TUNABLES}
    wrong = [name for name, value in found.items() if value != KERNEL_TUNABLES[name]]
    if protect and wrong:
        fixes = " ".join(f"{name.replace('/', '.')}={KERNEL_TUNABLES[name]}" for name in wrong)
        raise Permanent(
            "; ".join(
                f"invalid kernel flag: {name}, expected value: {wanted}, actual value: {_shown(found[name])}"
                for name, wanted in KERNEL_TUNABLES.items()
                if name in wrong
            ),
            obj="protectKernelDefaults: true",
            step="check machine",
            action=f"Set them (sysctl -w {fixes}) and keep them in /etc/sysctl.d, or set protectKernelDefaults: false.",
        )
    return [] if protect else [problem for name in wrong if (problem := _set(os.path.join(root, name), name, found))]


def _set(path: str, name: str, found: Mapping[str, int | None]) -> str:
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(str(KERNEL_TUNABLES[name]))
    except OSError as error:
        now = _shown(found[name])
        return f"kernel tunable {name} stays {now}, {KERNEL_TUNABLES[name]} cannot be set: {error.strerror}"
    log.info("kernel tunable %s was %s, is now %d", name, _shown(found[name]), KERNEL_TUNABLES[name])
    return ""


def _read(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _shown(value: int | None) -> str:
    return "unreadable" if value is None else str(value)
