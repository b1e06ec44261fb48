"""Where a pod's devices could be, for the topology manager; and which of them are where it decided.

Follows topology_hints.go and filterByAffinity of pkg/kubelet/cm/devicemanager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from agent.common.model.pods import Kind, Pod
from agent.common.plan.demand import container_amounts, is_sidecar
from agent.devices.model.devices import Holder, Holding, Json, Offer
from agent.devices.plan.devices import Choice, reusable_of, wishes
from agent.managers.plan.hints import Hint, Hints, Mask, mask_of, masks


def device_hints(
    pod: Pod, container: Json | None, held: Mapping[Holder, Holding], offers: Mapping[str, Offer]
) -> Hints:
    """`container` None: of the pod as a whole. Resources whose devices are nowhere in particular are left out."""
    if container is None:
        return _of_pod(pod, held, offers)
    found: dict[str, tuple[Hint, ...]] = {}
    for wish in wishes(pod, _aligned(offers)):
        if wish.holder.container != container["name"]:
            continue
        offer, has = offers[wish.holder.resource], held.get(wish.holder)
        if has is not None:
            found[wish.holder.resource] = _hints(offer, has.ids, frozenset(), wish.count, exact=True)
        else:
            free = _free(wish.holder.resource, offer, held)
            again = reusable_of(pod, wish, held)
            found[wish.holder.resource] = _hints(offer, free, again, wish.count)
    return found


def narrowed(choice: Choice, offer: Offer, affinity: Mask | None) -> Choice:
    """The same choice from the devices on these NUMA nodes, as far as they reach."""
    if affinity is None:
        return choice
    near = frozenset(one for one in choice.open if affinity & mask_of(offer.devices[one].numa))
    if len(near) >= choice.missing:
        return replace(choice, open=near)
    return Choice(choice.sure | near, choice.open - near, choice.missing - len(near))


def _of_pod(pod: Pod, held: Mapping[Holder, Holding], offers: Mapping[str, Offer]) -> Hints:
    found: dict[str, tuple[Hint, ...]] = {}
    for resource, count in _wanted_by_pod(pod, _aligned(offers)).items():
        has = [one.ids for holder, one in held.items() if (holder.uid, holder.resource) == (pod.uid, resource)]
        offer = offers[resource]
        if has:
            found[resource] = _hints(offer, frozenset[str]().union(*has), frozenset(), count, exact=True)
        else:
            found[resource] = _hints(offer, _free(resource, offer, held), frozenset(), count)
    return found


def _wanted_by_pod(pod: Pod, resources: Collection[str]) -> dict[str, int]:
    """The most of each at one time."""
    sidecars: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for kind, container in pod.containers(Kind.INIT, Kind.MAIN):
        amounts = container_amounts(container, "limits").items()
        own = Counter({name: int(amount) for name, amount in amounts if name in resources})
        if kind is Kind.MAIN or is_sidecar(container):
            sidecars += own
        else:
            peak |= sidecars + own
    return dict(sorted((peak | sidecars).items()))


def _aligned(offers: Mapping[str, Offer]) -> frozenset[str]:
    return frozenset(name for name, offer in offers.items() if any(one.numa for one in offer.devices.values()))


def _free(resource: str, offer: Offer, held: Mapping[Holder, Holding]) -> frozenset[str]:
    return offer.healthy.difference(*(has.ids for holder, has in held.items() if holder.resource == resource))


def _hints(
    offer: Offer, free: frozenset[str], reusable: frozenset[str], count: int, *, exact: bool = False
) -> tuple[Hint, ...]:
    if len(free | reusable) < count or (exact and len(free) != count):
        return ()
    near = {name: mask_of(device.numa) for name, device in offer.devices.items()}
    nodes = sorted({node for device in offer.devices.values() for node in device.numa})
    fewest, found = len(nodes), []
    for mask in masks(nodes):
        if sum(bool(mask & one) for one in near.values()) >= count:
            fewest = min(fewest, mask.bit_count())
        again = [near.get(one, 0) for one in reusable if near.get(one, 0)]
        if (
            all(mask & one for one in again)
            and len(again) + sum(bool(mask & near.get(one, 0)) for one in free) >= count
        ):
            found.append(mask)
    return tuple(Hint(mask, mask.bit_count() == fewest) for mask in found)
