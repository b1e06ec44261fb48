"""How many at a time of what costs the runtime some processes each, or some threads of ours. In every gate namespaces
take turns.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.common.work.gate import Gate

# Seconds: a container may take its whole grace to end, and the next need not wait for that. Of a hundred that ignore
# SIGTERM on a node of two processors, the last one gets it within 5 s, and within 25 while others start. With half a
# second for each, a hundred pods took 1.3 times as long to go as with upstream's kubelet.
_END, _END_BESIDE_STARTS = 0.2, 0.25
_RELEASE = 0.2  # seconds likewise: a driver may take minutes to unmount


@dataclass(frozen=True, slots=True)
class Gates:
    """`ends`: of containers and sandboxes, and while pods of other namespaces start; `releases`: of what pods had on
    the node's disk and in its cgroups, also those that it rejected; `updates`: of their resources; `commands`: those of
    clients of :10250.
    """

    sandboxes: Gate
    starts: Gate
    ends: Gate
    ends_beside_starts: Gate
    releases: Gate
    updates: Gate
    probes: Gate
    commands: Gate


def node_gates(cpus: int) -> Gates:
    """Those of a node with so many processors."""
    return Gates(
        sandboxes=Gate(2 * cpus),
        starts=Gate(2 * cpus),
        ends=Gate(2 * cpus, _END, counts_late=False),
        ends_beside_starts=Gate(max(1, cpus // 2), _END_BESIDE_STARTS, counts_late=False),
        releases=Gate(4 * cpus, _RELEASE, counts_late=False),
        updates=Gate(max(1, cpus // 2)),
        probes=Gate(4 * cpus, counts_late=False),
        commands=Gate(4 * cpus, counts_late=False),
    )
