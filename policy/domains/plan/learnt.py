"""What pods have learnt from DNS answers. Pure: it is told the time.

Who asks much gets no more memory than others: each pod has so many addresses, the latest ones. When all pods together
have as many as there may be, the one that has most makes room for one that has fewer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from policy.domains.model import Answer, Key, Learnt
from policy.model import Address, DomainNames
from policy.plan.entries import KNOWN

FLOOR = 30.0  # seconds: resolvers and programs keep an answer a little longer than it says
LONGEST = 86400.0  # seconds
GRACE = 5.0  # seconds: an answer that adds less than this is not written
MOST_OF_POD = 1024
MOST = 1 << 17  # of all pods of a node


class Memory:
    """`floor`: the seconds that an address is allowed at least."""

    def __init__(self, floor: float = FLOOR) -> None:
        self._floor = floor
        # Of each pod's address, in the order in which they were learnt: until when connections may begin.
        self._pods: dict[Address, OrderedDict[Key, float]] = {}
        self.count = 0
        self.left_out = 0

    def learn(
        self, answer: Answer, pod: Iterable[Address], sets: Mapping[str, DomainNames], now: float
    ) -> tuple[list[Learnt], list[Key]]:
        """What of an answer is news, and what has to go for it. `pod`: the addresses of the pod that got it."""
        names = [name for name, one in sets.items() if one.have(answer.name)]
        own = {one.version: one for one in reversed(tuple(pod))}
        news: dict[Key, Learnt] = {}
        gone: list[Key] = []
        largest: OrderedDict[Key, float] | None = None
        for address, seconds in answer.addresses:
            if address.version not in own:
                continue
            lasts = min(max(float(seconds), self._floor), LONGEST)
            for name in names:
                key = Key(name, own[address.version], address)
                known = self._pods.setdefault(key.pod, OrderedDict())
                if known.get(key, 0.0) < now + lasts:
                    gone += self._room(known, key, now)
                    if key not in known and self.count >= MOST:
                        # Looked for once in an answer: there may be a thousand a second with hundreds of addresses.
                        largest = max(self._pods.values(), key=len) if largest is None else largest
                        gone += self._shared(largest, known)
                    if key in known or self.count < MOST:
                        self._put(known, key, now + lasts + GRACE)
                        news[key] = Learnt(key, lasts + GRACE)
                    else:
                        self.left_out += 1
        return [one for key, one in news.items() if self._has(key)], [one for one in gone if not self._has(one)]

    def load(self, found: Iterable[Learnt], now: float) -> None:
        """What the kernel has from an earlier run of the daemon."""
        for key, seconds in found:
            self._put(self._pods.setdefault(key.pod, OrderedDict()), key, now + seconds)

    def forget(self, pods: Iterable[Address]) -> list[Key]:
        """These addresses are no longer, or not yet, those of a pod that has asked anything."""
        gone = [key for one in pods for key in self._pods.pop(one, ())]
        self.count -= len(gone)
        return gone

    def unlearn(self, keys: Iterable[Key]) -> None:
        """They could not be written."""
        for key in keys:
            known = self._pods.get(key.pod)
            if known is not None and known.pop(key, None) is not None:
                self.count -= 1

    def forget_sets(self, kept: Iterable[str]) -> None:
        """Sets that are gone have taken their elements along."""
        names = frozenset(kept)
        for pod, known in list(self._pods.items()):
            for key in [one for one in known if one.set not in names]:
                del known[key]
                self.count -= 1
            if not known:
                del self._pods[pod]

    def all(self, now: float) -> Iterator[Learnt]:
        """Everything, with the seconds that are left: 0 or less for what only connections that exist may use."""
        for known in self._pods.values():
            yield from (Learnt(key, until - now) for key, until in known.items())

    def _has(self, key: Key) -> bool:
        return key in self._pods.get(key.pod, ())

    def _put(self, known: OrderedDict[Key, float], key: Key, until: float) -> None:
        self.count += key not in known
        known[key] = until
        known.move_to_end(key)

    def _shared(self, largest: OrderedDict[Key, float], known: OrderedDict[Key, float]) -> list[Key]:
        """The oldest address of the pod that has most, if it has clearly more."""
        if len(largest) <= len(known) + 1:
            return []
        self.count -= 1
        return [largest.popitem(last=False)[0]]

    def _room(self, known: OrderedDict[Key, float], key: Key, now: float) -> list[Key]:
        gone = []
        while known:
            first, until = next(iter(known.items()))
            full = len(known) >= MOST_OF_POD and key not in known
            if not full and until + KNOWN > now:
                break
            if first == key:
                known.move_to_end(key)
                break
            del known[first]
            self.count -= 1
            gone.append(first)
        return gone
