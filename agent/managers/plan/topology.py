"""The policies of the topology manager: they merge the hints of all managers into one NUMA affinity.

Follows pkg/kubelet/cm/topologymanager/policy*.go. Upstream walks every combination of hints, millions of them with
eight nodes and three resources. Here combinations with the same outcome are looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.managers.model.cpus import NumaNode
from agent.managers.plan.hints import Hint, Hints, Mask, mask_of, masks, nodes_of, width
from agent.managers.plan.options import TopologyOptions
from nodelib.errors import Invalid

BEST_EFFORT, RESTRICTED, SINGLE = "best-effort", "restricted", "single-numa-node"
CONTAINER, POD = "container", "pod"
REASON = "TopologyAffinityError"
MESSAGE = "Resources cannot be allocated with Topology locality"
_NO_PREFERENCE, _IMPOSSIBLE = (Hint(None, True),), (Hint(None, False),)


@dataclass(frozen=True, slots=True)
class TopologyPolicy:
    """`name` is one of the three above; `scope`: whether each container or the pod as a whole is aligned.

    `distances`: the mean distance between the nodes of each set, for the option prefer-closest-numa-nodes.
    """

    name: str
    scope: str
    nodes: tuple[NumaNode, ...]
    options: TopologyOptions = field(default_factory=TopologyOptions)
    distances: Mapping[Mask, float] = field(default_factory=dict)

    @property
    def everywhere(self) -> Mask:
        return mask_of(node.id for node in self.nodes)

    @property
    def guarantees(self) -> bool:
        """Whether all resources of an admitted container are on one node."""
        return self.name == SINGLE


def topology_policy(
    name: str, scope: str, nodes: Sequence[NumaNode], options: TopologyOptions
) -> TopologyPolicy | None:
    """None: policy none. Raises Invalid for a machine that the policy does not support."""
    if name == "none":
        return None
    if options.closest and any(len(node.distances) < len(nodes) for node in nodes):
        raise Invalid("cannot discover NUMA topology: error getting NUMA distances from cadvisor")
    if len(nodes) > options.most_nodes:
        raise Invalid(f"unsupported on machines with more than {options.most_nodes} NUMA Nodes")
    distances = _distances(nodes) if options.closest and name != SINGLE else {}
    return TopologyPolicy(name, scope, tuple(nodes), options, distances)


def merge(policy: TopologyPolicy, provider_hints: Iterable[Hints]) -> tuple[Hint, bool]:
    """The best affinity, and whether the pod may be admitted with it. `provider_hints`: those of each manager."""
    listed = _filter_hints(provider_hints)
    if policy.name == SINGLE:
        listed = [tuple(one for one in hints if _is_single(one)) for hints in listed]
    best = _best(policy, listed)
    if policy.name == SINGLE and best.affinity == policy.everywhere:
        best = Hint(None, best.preferred)
    return best, policy.name == BEST_EFFORT or best.preferred


def _filter_hints(provider_hints: Iterable[Hints]) -> list[tuple[Hint, ...]]:
    found: list[tuple[Hint, ...]] = []
    for hints in provider_hints:
        if not hints:
            found.append(_NO_PREFERENCE)
        found.extend(hints[name] or _IMPOSSIBLE for name in sorted(hints))
    return found


def _is_single(hint: Hint) -> bool:
    return hint.preferred and (hint.affinity is None or hint.affinity.bit_count() == 1)


def _best(policy: TopologyPolicy, listed: Sequence[tuple[Hint, ...]]) -> Hint:
    rank = _ranking(policy, listed)
    # A preferred affinity always wins, so all combinations are computed only where there is none.
    preferred = [Hint(mask, True) for mask in _agreed(policy.everywhere, listed) if mask]
    found = preferred or [Hint(mask, False) for mask in _common(policy.everywhere, listed) if mask]
    return min(found, key=rank) if found else Hint(policy.everywhere, False)


def _agreed(everywhere: Mask, listed: Sequence[tuple[Hint, ...]]) -> set[Mask]:
    """Sets of nodes that every resource prefers or has no preference about: these combinations are preferred."""
    liked = [{one.affinity for one in hints if one.preferred} for hints in listed]
    named = set().union(*liked) - {None}
    found = {mask & everywhere for mask in named if mask and all(mask in one or None in one for one in liked)}
    return found | {everywhere} if all(None in one for one in liked) else found


def _common(everywhere: Mask, listed: Sequence[tuple[Hint, ...]]) -> set[Mask]:
    """The intersections of all combinations of one hint per resource."""
    found = {everywhere}
    for hints in listed:
        named = {everywhere if one.affinity is None else one.affinity for one in hints}
        if named != {everywhere}:
            found = {mask & other for mask in found for other in named}
    return found


def _ranking(policy: TopologyPolicy, listed: Sequence[tuple[Hint, ...]]) -> Callable[[Hint], tuple[object, ...]]:
    """Sort key, the lowest is the best: preferred hints, else those closest to the best non-preferred node count."""
    needs = [min((one.affinity.bit_count() for one in hints if one.affinity), default=0) for hints in listed]
    most = max(needs, default=0)
    distances = policy.distances

    def order(mask: Mask) -> tuple[float, ...]:
        return (mask.bit_count(), distances[mask], mask) if distances else width(mask)

    def rank(hint: Hint) -> tuple[object, ...]:
        mask = hint.affinity or 0
        count = mask.bit_count()
        if hint.preferred:
            return 0, 0, order(mask)
        return (2, 0, order(mask)) if count > most else (1, most - count, order(mask))

    return rank


def _distances(nodes: Sequence[NumaNode]) -> dict[Mask, float]:
    """The mean distance between the nodes of each set of nodes."""
    index = {node.id: number for number, node in enumerate(nodes)}
    by_id = {node.id: node for node in nodes}
    found = {}
    for mask in masks(by_id):
        pairs = [by_id[one].distances[index[other]] for one in nodes_of(mask) for other in nodes_of(mask)]
        found[mask] = sum(pairs) / len(pairs)
    return found
