"""What clusters change on the host itself, and how the last `down` undoes it.

An uplink needs forwarding, and kubelets set a few tunables of the kernel: each is recorded before it is changed, so
that it is not forgotten after a crash. Records of earlier versions also name mount points, which nodes had in the
host's own file tree then.
"""

from __future__ import annotations

import contextlib
import os

from controlplane.cluster.edge import state
from controlplane.cluster.edge.roots import state_root
from controlplane.cluster.model import Cluster
from controlplane.cluster.plan import uplink as plan
from controlplane.machine.edge import iptables, namespaces
from controlplane.machine.edge.locks import directory_lock
from nodelib.files import text_of
from nodelib.kernel_tunables import KERNEL_TUNABLES

_FORWARDING = "net/ipv4/ip_forward"
_CHAINS = (("nat", "POSTROUTING"), ("filter", "FORWARD"))


async def ensure_uplink(cluster: Cluster) -> None:
    """Masquerading and forwarding for the nodes. Forwarding that was off is recorded and switched on."""
    with directory_lock(state_root(), wait=True):
        with open(f"/proc/sys/{_FORWARDING}", encoding="ascii") as file:
            before = file.read().strip()
        if before != "1":
            record = state.host_record()
            record["sysctls"].setdefault(_FORWARDING, before)
            state.save_host_record(record)
            with open(f"/proc/sys/{_FORWARDING}", "w", encoding="ascii") as file:
                file.write("1")
    for rule in plan.rules(cluster):
        await iptables.ensure_rule(rule.table, rule.chain, rule.arguments)


async def remove_uplink(name: str) -> int:
    """Delete the rules with the cluster's name. Returns how many there were."""
    count = 0
    for table, chain in _CHAINS:
        for line in plan.owned(await iptables.list_rules(table, chain), name):
            await iptables.delete_rule(table, line)
            count += 1
    return count


def record_kernel_tunables() -> None:
    """Note the machine's own values of the tunables that a kubelet sets (setupKernelTunables), for the last `down`.

    Nodes share the kernel with the machine, so a kubelet in one, ours or upstream's, sets them for all.
    """
    with directory_lock(state_root(), wait=True):
        record = state.host_record()
        fresh = {
            name: text_of(f"/proc/sys/{name}").strip() for name in KERNEL_TUNABLES if name not in record["sysctls"]
        }
        known = {name: value for name, value in fresh.items() if value}
        if known:
            record["sysctls"] |= known
            state.save_host_record(record)


def remove_if_empty(name: str) -> None:
    """Remove the directory of a cluster that was refused before anything was made for it."""
    with contextlib.suppress(OSError):  # not empty: there is a cluster, or parts of one
        os.rmdir(os.path.join(state_root(), name))
    undo_if_last()


def undo_if_last() -> None:
    """Once the last cluster is gone: restore sysctls, remove our mount points and the state root."""
    if state.clusters():
        return
    with directory_lock(state_root(), wait=True):
        if state.clusters():
            return
        record = state.host_record()
        for name, before in record["sysctls"].items():
            if text_of(f"/proc/sys/{name}").strip() != before:
                with open(f"/proc/sys/{name}", "w", encoding="ascii") as file:
                    file.write(before)
        # Removing a mount point also unmounts what is mounted on it in other mount namespaces (mount_namespaces(7)).
        used = namespaces.mount_points_in_use()
        for path in record["files"]:
            if path not in used and os.path.isfile(path) and os.path.getsize(path) == 0:
                os.unlink(path)
        for path in sorted(record["dirs"], key=len, reverse=True):
            if path not in used:
                with contextlib.suppress(OSError):  # somebody else uses it by now
                    os.rmdir(path)
        state.delete_host_record()
        with contextlib.suppress(OSError):
            os.rmdir(state_root())
