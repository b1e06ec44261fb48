"""The kernel's tunables that a kubelet wants: names below /proc/sys, and values.

component-helpers/node/util/sysctl: overcommit always, call the OOM killer, reboot 10 s after a panic, panic on an oops,
and room for the key that a runtime makes for each container (25 bytes each).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

KERNEL_TUNABLES: Mapping[str, int] = MappingProxyType(
    {
        "vm/overcommit_memory": 1,
        "vm/panic_on_oom": 0,
        "kernel/panic": 10,
        "kernel/panic_on_oops": 1,
        "kernel/keys/root_maxkeys": 1_000_000,
        "kernel/keys/root_maxbytes": 25_000_000,
    }
)
