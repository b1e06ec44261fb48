"""What this machine is, and what it can do that some specs need."""

from __future__ import annotations

import os

from controlplane.machine.edge import cgroups, oom
from controlplane.machine.edge.protocols import has_sctp
from controlplane.scoreboard.model import Machine
from nodelib.files import text_of


def read() -> Machine:
    """The machine as it is now."""
    trees = cgroups.hierarchies()
    memory = next((line.split()[1] for line in text_of("/proc/meminfo").splitlines() if line.startswith("MemTotal")), 0)
    unified = trees.mode == "v2"
    have = {
        "sctp": has_sctp(),
        "swap": len(text_of("/proc/swaps").splitlines()) > 1,
        "cgroup2": unified,
        "oom-scores": oom.may_lower_score(),
        "selinux": os.path.exists("/sys/fs/selinux/enforce"),
        "apparmor": text_of("/sys/module/apparmor/parameters/enabled").strip() == "Y",
    }
    kernel = ".".join(os.uname().release.split(".")[:2])
    text = (
        f"{os.cpu_count()} CPUs, {round(int(memory) / (1 << 20))} GiB of memory, kernel {kernel},"
        f" cgroup {'v2' if unified else 'v1'}"
    )
    return Machine(text, frozenset(name for name, there in have.items() if there))
