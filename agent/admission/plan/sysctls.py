"""Which sysctls a pod may set. Follows pkg/kubelet/sysctl."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.common.model.pods import Pod
from agent.common.plan.sysctl_names import normalized

FORBIDDEN_REASON = "SysctlForbidden"

_RELEASE = re.compile(r"(\d+)\.(\d+)")

# (name, the kernel version in which it became namespaced)
_SAFE: tuple[tuple[str, tuple[int, int]], ...] = (
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
    ("net.ipv4.tcp_slow_start_after_idle", (4, 15)),
    ("net.ipv4.tcp_notsent_lowat", (4, 6)),
)


def kernel_version(release: str) -> tuple[int, int]:
    """(major, minor) of a release such as "6.18.0-rc1-amd64"; (0, 0) when it has none."""
    found = _RELEASE.match(release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def safe_sysctls(kernel: tuple[int, int]) -> tuple[str, ...]:
    """The names that every pod may set on a kernel of this (major, minor) version."""
    return tuple(name for name, since in _SAFE if kernel >= since)


def refused(pod: Pod, kernel: tuple[int, int], allowed_unsafe: Sequence[str] = ()) -> str:
    """Why the pod must not be admitted (reason SysctlForbidden), or "".

    `allowed_unsafe` is the setting allowedUnsafeSysctls; a name may end in "*".
    """
    allowed = (*safe_sysctls(kernel), *(normalized(name) for name in allowed_unsafe))
    for item in (pod.spec.get("securityContext") or {}).get("sysctls") or []:
        name = normalized(str(item.get("name", "")))
        if not any(name == known or (known.endswith("*") and name.startswith(known[:-1])) for known in allowed):
            return f'forbidden sysctl: "{name}" not allowlisted'
        if shared := _shared_namespace(pod, name):
            return f'forbidden sysctl: "{name}" not allowed with host {shared} enabled'
    return ""


def _shared_namespace(pod: Pod, name: str) -> str:
    if name.startswith("net.") and pod.host_network:
        return "Net"
    if name.startswith(("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")) and pod.spec.get("hostIPC"):
        return "IPC"
    if name.startswith("user.") and pod.spec.get("hostUsers", True):
        return "User"
    return ""
