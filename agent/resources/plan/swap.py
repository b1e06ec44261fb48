"""How much swap a container may use (KEP-2400; kuberuntime_container_linux.go GetContainerSwapBehavior).

Only on cgroup v2, and only in Burstable pods whose container may use more memory than it requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.common.model.pods import Pod
from agent.common.plan import demand
from nodelib.json_values import Json

LIMITED = "LimitedSwap"


@dataclass(frozen=True, slots=True)
class Swap:
    """`limits`: the memory controller can limit swap; `behavior`: memorySwap.swapBehavior; `total`, `memory`: bytes."""

    limits: bool = False
    behavior: str = ""
    total: int = 0
    memory: int = 0


def most(pod: Pod, container: Json, swap: Swap) -> int:
    """Bytes: the container's share of the node's swap is that of its memory request in the node's memory."""
    requests, limits = (demand.container_amounts(container, side) for side in ("requests", "limits"))
    asked, bound = requests.get(demand.MEMORY, demand.ZERO), limits.get(demand.MEMORY, demand.ZERO)
    if swap.behavior != LIMITED or demand.is_critical(pod) or demand.qos_class(pod) is not demand.Qos.BURSTABLE:
        return 0
    if not asked or asked == bound or not 0 < asked <= swap.memory:
        return 0
    return int(asked) * swap.total // swap.memory
