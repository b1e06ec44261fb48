"""Whose connections are too many when the node's table of connections fills, and which of them go. Pure.

The kernel has one table for all pods of a node, and what is in use there gives way to nothing. So when three quarters
are taken, room is shared out: half of the table, less what the node itself and its host-network pods hold, is given to
the namespaces so that nobody who asks for less than others is cut (max-min fairness), and a namespace's part to its
pods in the same way. Namespaces come first, so that many pods get their owner no more than one would.

Who holds more than that may begin only a few connections until he holds clearly less. What is beyond his part is
deleted, first what has no answer, then what is answered but costs nobody anything to begin again. Living TCP
connections are cut last, and only as far as there is too little room otherwise; those that a pod has received are not
its doing, and are never cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cni.model import Connections, Held, Holder

CROWDED, ROOMY = 0.75, 0.4  # shares of the table: sharing begins, and ends
# Two pods were seen to fill a table of 262,144 in 1.3 s; what they fill in two seconds gives way to others yet, as the
# kernel keeps UDP for good only when it goes on after that.
_PAUSES = ((0.25, 1.0), (0.5, 0.5), (CROWDED, 0.1))
_WANTED = 0.5  # what is shared out
_TOLERATED = 0.7  # living connections are cut down to this only
_LEAST = 256  # nobody is cut below one part in so many of the table
_RELEASED = 0.75  # of a holder's part


@dataclass(frozen=True, slots=True)
class Shares:
    """`parts`: what each bounded holder may have; everybody else is free. `cuts`: what of theirs is deleted."""

    parts: dict[Holder, int]
    cuts: tuple[Held, ...] = ()


def crowded(entries: int, limit: int) -> bool:
    return entries >= limit * CROWDED


def roomy(entries: int, limit: int) -> bool:
    return entries < limit * ROOMY


def pause(entries: int, limit: int) -> float:
    """Seconds until the table is to be looked at again; a look costs a quiet node as little as anything can."""
    return next(seconds for most, seconds in _PAUSES if entries < limit * most)


def share(found: Connections, limit: int, pods: Mapping[str, str], before: Mapping[Holder, int]) -> Shares:
    """The bounds from now on. `pods`: namespace/name by address; `before`: the bounds until now."""
    totals = {one.holder: one.total for one in found.held}
    kept = {one: part for one, part in before.items() if totals.get(one, 0) > part * _RELEASED}
    if not crowded(found.entries, limit):
        return Shares(kept)
    parts = _parts(found, limit, pods)
    over = [one for one in found.held if one.total > parts.get(one.holder, one.total)]
    return Shares(kept | {one.holder: parts[one.holder] for one in over}, _cuts(over, parts, found.entries, limit))


def level(sizes: Iterable[int], room: int) -> int | None:
    """The most that each may have if all together may have `room`; None: there is room for all."""
    ordered = sorted(sizes)
    for number, size in enumerate(ordered):
        most = max(room, 0) // (len(ordered) - number)
        if size > most:
            return most
        room -= size
    return None


def _parts(found: Connections, limit: int, pods: Mapping[str, str]) -> dict[Holder, int]:
    """What each holder of a namespace that has too many may have."""
    groups: dict[str, list[Held]] = {}
    for one in found.held:
        # An address in the range of the pods that no pod has is on its own.
        namespace = pods.get(one.holder.address, one.holder.address).partition("/")[0]
        groups.setdefault(namespace, []).append(one)
    others = found.entries - sum(one.total for one in found.held)
    sums = {name: sum(one.total for one in group) for name, group in groups.items()}
    most = level(sums.values(), int(limit * _WANTED) - others)
    parts: dict[Holder, int] = {}
    if most is None:
        return parts
    for name, group in groups.items():
        if sums[name] > most:
            part = level([one.total for one in group], most)
            if part is not None:
                parts |= {one.holder: max(part, limit // _LEAST) for one in group}
    return parts


def _cuts(over: list[Held], parts: Mapping[Holder, int], entries: int, limit: int) -> tuple[Held, ...]:
    cheap = [_cheap(one, one.total - parts[one.holder]) for one in over]
    still = [
        0 if one.holder.received else one.total - parts[one.holder] - cut.total
        for one, cut in zip(over, cheap, strict=True)
    ]
    missing = entries - sum(cut.total for cut in cheap) - int(limit * _TOLERATED)
    if missing > 0 and (most := sum(still)):
        # Each gives in proportion to what he has too many.
        living = [min(one, -(-one * min(missing, most) // most)) for one in still]
        cheap = [Held(cut.holder, cut.unanswered, cut.passing, more) for cut, more in zip(cheap, living, strict=True)]
    return tuple(cut for cut in cheap if cut.total)


def _cheap(held: Held, excess: int) -> Held:
    unanswered = min(held.unanswered, excess)
    return Held(held.holder, unanswered, min(held.passing, excess - unanswered))


def who(holder: Holder, pods: Mapping[str, str]) -> str:
    """namespace/name of the pod, or the address if no pod has it."""
    return pods.get(holder.address) or holder.address


def words(held: Held, part: int, limit: int) -> str:
    """What is said of somebody who gets bounded."""
    whose = (
        "connections from outside of the node to it are" if held.holder.received else "connections that it began are"
    )
    return (
        f"{held.total} {whose} in the node's table of {limit}, which is nearly full; its part is {part}. "
        "Until there are clearly fewer, only some new ones a second pass"
    )
