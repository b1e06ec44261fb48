"""The topology manager: of all NUMA nodes on which something could be, those where all of it is to be.

Follows pkg/kubelet/cm/topologymanager/policy*.go. Upstream walks every combination of hints, which with eight nodes and
three resources is millions; here combinations that come to the same are one (their order makes no difference).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from agent.model.cpus import NumaNode
from agent.plan.exclusive.hints import Hint, Hints, Mask, mask_of, nodes_of, width
from agent.plan.exclusive.options import TopologyOptions
from nodelib.errors import Invalid

BEST_EFFORT, RESTRICTED, SINGLE = "best-effort", "restricted", "single-numa-node"
CONTAINER, POD = "container", "pod"
REASON = "TopologyAffinityError"
MESSAGE = "Resources cannot be allocated with Topology locality"
_NO_PREFERENCE, _IMPOSSIBLE = (Hint(None, True),), (Hint(None, False),)


@dataclass(frozen=True, slots=True)
class TopologyPolicy:
    """`name` is one of the three above; `scope`: what is to be on the same nodes, a container or a pod."""

    name: str
    scope: str
    nodes: tuple[NumaNode, ...]
    options: TopologyOptions = field(default_factory=TopologyOptions)

    @property
    def everywhere(self) -> Mask:
        return mask_of(node.id for node in self.nodes)

    @property
    def guarantees(self) -> bool:
        """What is admitted is on one node."""
        return self.name == SINGLE


def topology_policy(
    name: str, scope: str, nodes: Sequence[NumaNode], options: TopologyOptions
) -> TopologyPolicy | None:
    """None: policy none. Raises Invalid for a machine that this one cannot serve."""
    if name == "none":
        return None
    if options.closest and any(len(node.distances) < len(nodes) for node in nodes):
        raise Invalid("cannot discover NUMA topology: error getting NUMA distances from cadvisor")
    if len(nodes) > options.most_nodes:
        raise Invalid(f"unsupported on machines with more than {options.most_nodes} NUMA Nodes")
    return TopologyPolicy(name, scope, tuple(nodes), options)


def merged(policy: TopologyPolicy, told: Iterable[Hints]) -> tuple[Hint, bool]:
    """Where all of it is to be, and whether that will do. `told`: of each manager."""
    listed = _listed(told)
    if policy.name == SINGLE:
        listed = [tuple(one for one in hints if _is_single(one)) for hints in listed]
    best = _best(policy, listed)
    if policy.name == SINGLE and best.affinity == policy.everywhere:
        best = Hint(None, best.preferred)
    return best, policy.name == BEST_EFFORT or best.preferred


def _listed(told: Iterable[Hints]) -> list[tuple[Hint, ...]]:
    found: list[tuple[Hint, ...]] = []
    for hints in told:
        if not hints:
            found.append(_NO_PREFERENCE)
        found.extend(hints[name] or _IMPOSSIBLE for name in sorted(hints))
    return found


def _is_single(hint: Hint) -> bool:
    return hint.preferred and (hint.affinity is None or hint.affinity.bit_count() == 1)


def _best(policy: TopologyPolicy, listed: Sequence[tuple[Hint, ...]]) -> Hint:
    rank = _ranking(policy, listed)
    found = [one for one in _combined(policy.everywhere, listed) if one.affinity]
    return min(found, key=rank) if found else Hint(policy.everywhere, False)


def _combined(everywhere: Mask, listed: Sequence[tuple[Hint, ...]]) -> set[Hint]:
    """What all combinations come to: the nodes that all have; preferred if all are, and name the same ones."""
    # (nodes of all so far, the nodes that the first one named or None, all preferred and the same so far)
    states: set[tuple[Mask, Mask | None, bool]] = {(everywhere, None, True)}
    for hints in listed:
        states = {_with(state, hint) for state in states for hint in hints}
    return {Hint(mask, preferred) for mask, _, preferred in states}


def _with(state: tuple[Mask, Mask | None, bool], hint: Hint) -> tuple[Mask, Mask | None, bool]:
    mask, first, preferred = state
    preferred = preferred and hint.preferred
    if hint.affinity is not None:
        preferred = preferred and first in (None, hint.affinity)
        mask &= hint.affinity
        first = hint.affinity if first is None else first
    return mask, first if preferred else 0, preferred


def _ranking(policy: TopologyPolicy, listed: Sequence[tuple[Hint, ...]]) -> Callable[[Hint], tuple[object, ...]]:
    """The least is the best: preferred; else as many nodes as the neediest resource needs, fewer rather than more."""
    needs = [min((one.affinity.bit_count() for one in hints if one.affinity), default=0) for hints in listed]
    most = max(needs, default=0)
    closest = policy.options.closest and policy.name != SINGLE

    def order(mask: Mask) -> tuple[float, ...]:
        return (mask.bit_count(), _distance(policy, mask), mask) if closest else width(mask)

    def rank(hint: Hint) -> tuple[object, ...]:
        mask = hint.affinity or 0
        count = mask.bit_count()
        if hint.preferred:
            return 0, 0, order(mask)
        return (2, 0, order(mask)) if count > most else (1, most - count, order(mask))

    return rank


def _distance(policy: TopologyPolicy, mask: Mask) -> float:
    """The mean distance between the nodes."""
    nodes = [node for node in policy.nodes if node.id in nodes_of(mask)]
    index = {node.id: number for number, node in enumerate(policy.nodes)}
    pairs = [one.distances[index[other.id]] for one in nodes for other in nodes]
    return sum(pairs) / len(pairs)
