"""A critical pod that the node has no room for preempts others (pkg/kubelet/preemption/preemption.go).

Static pods are critical whatever their priority: the scheduler never saw them and reserved nothing for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import partial

from agent.admission.plan.admit import NodeView, refusal, shortages
from agent.common.model.eviction import Eviction
from agent.common.model.pods import Pod
from agent.common.model.refusal import UNEXPECTED, Refusal
from agent.common.plan import demand
from agent.common.plan.demand import Qos
from agent.common.plan.restart import grace_seconds

REASON = "Preempting"
MESSAGE = "Preempted in order to admit critical pod"

Lacking = Mapping[str, Decimal]


def admission(pod: Pod, others: Iterable[Pod], node: NodeView) -> tuple[Refusal | None, tuple[Eviction, ...]]:
    """Why the pod cannot run; or None, and the evictions that make room for it."""
    beside = list(others)
    if not demand.is_critical(pod):
        return refusal(pod, beside, node), ()
    refused = refusal(pod, beside, node, resources=False)
    short = {name: wanted + used - have for name, (wanted, used, have) in shortages(pod, beside, node).items()}
    if refused is not None or not short:
        return refused, ()
    victims = victims_of(pod, beside, short)
    if victims is None:
        amounts = "".join(f"(res: {name}, q: {_whole(name, amount)}), " for name, amount in short.items())
        text = f"no set of running pods found to reclaim resources: [{amounts}]"
        recovery = "Unexpected error while attempting to recover from admission failure: preemption: "
        return Refusal(UNEXPECTED, f"{recovery}error finding a set of pods to preempt: {text}"), ()
    signal = next(iter(short))
    return None, tuple(Eviction(one, REASON, MESSAGE, grace_seconds(one), signal, disrupted=True) for one in victims)


def victims_of(pod: Pod, others: list[Pod], lacking: Lacking) -> list[Pod] | None:
    """The fewest and smallest pods, BestEffort before Burstable before Guaranteed; None: all of them are not enough."""
    classes: dict[Qos, list[Pod]] = {kind: [] for kind in (Qos.BEST_EFFORT, Qos.BURSTABLE, Qos.GUARANTEED)}
    for other in others:
        if _preemptable(pod, other):
            classes[demand.qos_class(other)].append(other)
    best, burst, guaranteed = classes.values()
    if _left(lacking, [*best, *burst, *guaranteed]):
        return None
    chosen_guaranteed = _closest(guaranteed, _left(lacking, [*best, *burst]))
    chosen_burst = _closest(burst, _left(lacking, [*best, *chosen_guaranteed]))
    chosen_best = _closest(best, _left(lacking, [*chosen_burst, *chosen_guaranteed]))
    return [*chosen_best, *chosen_burst, *chosen_guaranteed]


def _preemptable(pod: Pod, other: Pod) -> bool:
    if not demand.is_critical(other):
        return True
    mine, its = pod.spec.get("priority"), other.spec.get("priority")
    return mine is not None and its is not None and mine > its


def _closest(pods: list[Pod], lacking: Lacking) -> list[Pod]:
    """Repeatedly the pod after which the least is lacking; of two such pods the smaller one."""
    chosen: list[Pod] = []
    rest = list(pods)
    while lacking and rest:
        best = min(rest, key=partial(_cost, lacking))
        rest.remove(best)
        chosen.append(best)
        lacking = _left(lacking, [best])
    return chosen


def _cost(lacking: Lacking, one: Pod) -> tuple[Decimal, Decimal, Decimal]:
    requests, zero = _amounts(one, (*lacking, "memory", "cpu")), Decimal(0)
    missing = [max(zero, amount - requests.get(name, zero)) / amount for name, amount in lacking.items()]
    return sum((part**2 for part in missing), zero), requests.get("memory", zero), requests.get("cpu", zero)


def _left(lacking: Lacking, gone: Iterable[Pod]) -> dict[str, Decimal]:
    freed = demand.total_of(_amounts(one, tuple(lacking)) for one in gone)
    left = {name: amount - freed.get(name, Decimal(0)) for name, amount in lacking.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def _amounts(pod: Pod, names: tuple[str, ...]) -> dict[str, Decimal]:
    return {**demand.counted_requests(pod, names), "pods": Decimal(1)}


def _whole(name: str, amount: Decimal) -> int:
    return int(amount * 1000) if name == "cpu" else int(amount)
