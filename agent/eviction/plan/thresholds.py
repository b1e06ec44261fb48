"""The configured thresholds, which of them are met, and what that means for the node.

Follows pkg/kubelet/eviction/helpers.go (ParseThresholdConfig, thresholdsMet).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal

from agent.common.model.eviction import MEMORY_PRESSURE
from agent.eviction.model import (
    EvictionPolicy,
    EvictionState,
    Level,
    Observation,
    Observations,
    Round,
    Share,
    Threshold,
)
from agent.eviction.plan.signals import ALLOCATABLE_MEMORY, MEMORY_AVAILABLE, RESOURCES, condition_of, urgency
from nodelib.quantity import parse

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%", re.ASCII)
_NONE = ("0%", "100%")  # upstream's way to switch a default threshold off
_CLOSE = 1.5  # times a threshold: below that the node is measured often


def thresholds(
    hard: Mapping[str, str],
    soft: Mapping[str, str],
    grace: Mapping[str, float],
    reclaim: Mapping[str, str],
    *,
    enforce_pods: bool,
) -> tuple[Threshold, ...]:
    """From checked settings. `grace`: seconds by signal; `enforce_pods`: the pods' own cgroup has a limit to watch."""
    found = [Threshold(signal, share(text)) for signal, text in hard.items() if _counts(signal, text)]
    found += [
        Threshold(signal, share(text), grace.get(signal, 0.0)) for signal, text in soft.items() if _counts(signal, text)
    ]
    found = [replace(one, reclaim=share(reclaim[one.signal])) if one.signal in reclaim else one for one in found]
    if enforce_pods:
        found += [
            replace(one, signal=ALLOCATABLE_MEMORY) for one in found if one.signal == MEMORY_AVAILABLE and one.hard
        ]
    return tuple(found)


def share(text: str) -> Share:
    """A quantity, or a percentage. Raises Invalid."""
    percent = _PERCENT.fullmatch(text)
    return Share(parse(text)) if percent is None else Share(percent=Decimal(percent[1]))


def met(thresholds: Iterable[Threshold], seen: Observations, *, with_reclaim: bool = False) -> list[Threshold]:
    """The thresholds that are met; one whose signal cannot be observed is not."""
    found = []
    for one in thresholds:
        observed = seen.get(one.signal)
        if observed is None:
            continue
        least = one.least.of(observed.capacity)
        if with_reclaim and one.reclaim is not None:
            least += one.reclaim.of(observed.capacity)
        if observed.available < least:
            found.append(one)
    return found


def is_close(thresholds: Iterable[Threshold], seen: Observations) -> bool:
    """Whether something may run out before the next round at the ordinary interval."""
    return any(
        (found := seen.get(one.signal)) is not None and found.available < one.least.of(found.capacity) * _CLOSE
        for one in thresholds
    )


def next_round(policy: EvictionPolicy, state: EvictionState, seen: Observations, now: float) -> Round:
    """The outcome of these observations, in the order of managerImpl.synchronize."""
    present = met(policy.thresholds, seen)
    # What was acted on stays met until its minimum reclaim is available too.
    present += [one for one in met(state.met, seen, with_reclaim=True) if one not in present]
    since = {one: state.since.get(one, now) for one in present}
    observed = {**state.observed, **dict.fromkeys((condition_of(one.signal) for one in present), now)}
    observed = {kind: at for kind, at in observed.items() if at == now or now - at < policy.transition}
    due = tuple(sorted((one for one in present if now - since[one] >= one.grace), key=urgency))
    return Round(EvictionState(since, observed, due), conditions(observed), due)


def levels(policy: EvictionPolicy, state: EvictionState, seen: Observations, ahead: float) -> tuple[Level, ...]:
    """Every threshold beside what was observed; `ahead`: seconds that the wall clock is ahead of the state's."""
    found = []
    for one in policy.thresholds:
        observed, since = seen.get(one.signal, Observation(0, 0)), state.since.get(one)
        least = one.least.of(observed.capacity)
        met_since = 0.0 if since is None else since + ahead
        found.append(Level(one.signal, observed.available, observed.capacity, least, one.grace, met_since))
    return tuple(found)


def conditions(observed: Iterable[str]) -> tuple[str, ...]:
    """In a fixed order, as messages show them."""
    return tuple(sorted(observed, key=lambda kind: (kind != MEMORY_PRESSURE, kind)))


def _counts(signal: str, text: str) -> bool:
    return signal in RESOURCES and text not in _NONE
