"""The CPUs of this machine as sysfs describes them: sockets, NUMA nodes, cores, caches; memory by NUMA node.

Files: Documentation/ABI/stable/sysfs-devices-node, testing/sysfs-devices-system-cpu. As in cAdvisor, a shared
last-level cache is one beyond level 2 that serves more than one core and less than a NUMA node.
"""

from __future__ import annotations

import os
import re

from agent.managers.model.cpus import Cpu, CpuTopology, NumaNode, parse_cpus
from nodelib.errors import NodewrightError, Permanent

_TOTAL = re.compile(r"MemTotal:\s+(\d+) kB")


def read_topology(sys: str = "/sys/devices/system", memory: int = 0) -> CpuTopology:
    """`memory`: bytes of a machine without NUMA nodes in sysfs. Raises Permanent when the files cannot be read."""
    try:
        numas = _numas(sys)
        of_cpu = {cpu: node for node in numas for cpu in parse_cpus(_text(f"{sys}/node/node{node}/cpulist"))}
        per_node: dict[int, int] = {}
        online = sorted(parse_cpus(_text(f"{sys}/cpu/online")))
        for cpu in online:
            per_node[of_cpu.get(cpu, 0)] = per_node.get(of_cpu.get(cpu, 0), 0) + 1
        cpus = tuple(_cpu(sys, one, of_cpu.get(one, 0), per_node, frozenset(online)) for one in online)
        nodes = tuple(_node(sys, one) for one in numas) or (NumaNode(0, memory, distances=(10,)),)
        return CpuTopology(cpus, nodes)
    except (OSError, ValueError, NodewrightError) as error:
        raise Permanent(
            f"the CPU topology of this machine cannot be read: {error}",
            obj=sys,
            step="read CPU topology",
            action="Set cpuManagerPolicy, memoryManagerPolicy and topologyManagerPolicy to none here.",
        ) from error


def _cpu(sys: str, cpu: int, numa: int, per_node: dict[int, int], online: frozenset[int]) -> Cpu:
    folder = f"{sys}/cpu/cpu{cpu}"
    siblings = parse_cpus(_text(f"{folder}/topology/thread_siblings_list")) & online or {cpu}
    socket = int(_text(f"{folder}/topology/physical_package_id"))
    # Some machines report -1, which means one socket (cAdvisor does the same).
    socket = max(socket, 0)
    uncore = socket
    for level, shared, number in _caches(folder):
        if level > 2 and len(siblings) < len(shared & online) < per_node[numa]:
            uncore = number
    return Cpu(cpu, min(siblings), socket, numa, uncore)


def _caches(folder: str) -> list[tuple[int, frozenset[int], int]]:
    """(level, CPUs, id) of each cache; none where the kernel does not list them."""
    found = []
    try:
        names = sorted(name for name in os.listdir(f"{folder}/cache") if name.startswith("index"))
    except OSError:
        return []
    for name in names:
        path = f"{folder}/cache/{name}"
        shared = parse_cpus(_text(f"{path}/shared_cpu_list"))
        number = int(_text(f"{path}/id")) if os.path.exists(f"{path}/id") else min(shared, default=0)
        found.append((int(_text(f"{path}/level")), shared, number))
    return found


def _numas(sys: str) -> list[int]:
    try:
        names = os.listdir(f"{sys}/node")
    except OSError:
        return []
    return sorted(int(name[4:]) for name in names if re.fullmatch(r"node\d+", name))


def _node(sys: str, number: int) -> NumaNode:
    folder = f"{sys}/node/node{number}"
    total = _TOTAL.search(_text(f"{folder}/meminfo"))
    distances = tuple(int(one) for one in _text(f"{folder}/distance").split())
    return NumaNode(number, int(total[1]) * 1024 if total else 0, _hugepages(f"{folder}/hugepages"), distances)


def _hugepages(folder: str) -> dict[int, int]:
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    sizes = {name: int(name.removeprefix("hugepages-").removesuffix("kB")) * 1024 for name in names}
    return {size: size * int(_text(f"{folder}/{name}/nr_hugepages")) for name, size in sorted(sizes.items())}


def _text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()
