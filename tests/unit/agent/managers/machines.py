"""Machines of several shapes, and pods that request whole CPUs."""

from __future__ import annotations

from typing import Any

from agent.common.model.pods import Pod
from agent.managers.model.cpus import Cpu, CpuTopology, NumaNode
from nodelib.json_values import Json
from tests.builders.pods import container, pod

GI = 1 << 30


def machine(
    *,
    sockets: int = 1,
    numas: int = 1,
    cores: int = 2,
    threads: int = 1,
    caches: int = 1,
    interleaved: bool = False,
    memory: int = 4 * GI,
) -> CpuTopology:
    """`numas`, `caches` and `cores` are per machine. Threads of a core are numbered one round after the other.

    `interleaved`: neighbouring cores are on different sockets, as some firmware numbers them.
    """
    found = []
    for thread in range(threads):
        for core in range(cores):
            place = core % sockets * (cores // sockets) + core // sockets if interleaved else core
            socket, numa, cache = (place * many // cores for many in (sockets, numas, caches))
            found.append(Cpu(thread * cores + core, core, socket, numa, cache if caches > 1 else socket))
    distances = [tuple(10 if one == other else 20 for other in range(numas)) for one in range(numas)]
    return CpuTopology(tuple(found), tuple(NumaNode(one, memory, {}, distances[one]) for one in range(numas)))


TWO = machine(cores=2)
SMT = machine(cores=4, threads=2)
DUAL = machine(sockets=2, numas=2, cores=6, threads=2, interleaved=True)
QUAD_NUMA = machine(sockets=2, numas=4, cores=40, threads=2)
WIDE_NUMA = machine(sockets=4, numas=2, cores=16, threads=2)
CACHES = machine(sockets=2, numas=2, cores=16, caches=4)
CACHES_SMT = machine(cores=8, threads=2, caches=2)


def asks(cpu: str, memory: str = "64Mi") -> Json:
    """Requests that are limits."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}


def guaranteed(uid: str, *cpus: str, inits: tuple[str, ...] = (), sidecars: tuple[str, ...] = (), **spec: Any) -> Pod:
    """Containers c0, c1, …; init containers i0, …; sidecars s0, … before those."""
    mains = [container(f"c{index}", resources=asks(cpu)) for index, cpu in enumerate(cpus)]
    first = [container(f"s{index}", resources=asks(cpu), restartPolicy="Always") for index, cpu in enumerate(sidecars)]
    first += [container(f"i{index}", resources=asks(cpu)) for index, cpu in enumerate(inits)]
    return pod(*mains, meta={"uid": uid, "name": uid}, initContainers=first, **spec)
