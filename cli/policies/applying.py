"""Which network policies apply to a pod, as the policy daemon would say: for the rows of the page of `view`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from nodelib.json_values import Json
from policy.cluster_model import ClusterPolicy, Tier
from policy.model import Direction, Party, Policy
from policy.plan import parse, parse_cluster
from view.model.network import Applied
from view.model.objects import CLUSTER_POLICY, POLICY

_KEPT = 4096  # policies that are kept as they were read
T = TypeVar("T")


class Applying:
    """Remembers policies as it has read them: each of them is asked about for many pods."""

    def __init__(self) -> None:
        self._policies: _Read[Policy] = _Read(lambda obj: parse.policy(obj)[0])
        self._above: _Read[ClusterPolicy | None] = _Read(lambda obj: parse_cluster.cluster_policy(obj)[0])

    def __call__(
        self, pod: Json, policies: Iterable[Json], above: Iterable[Json] = (), space: Json | None = None
    ) -> Sequence[Applied]:
        """In the order in which they decide. `policies`: of the pod's namespace; `above`: ClusterNetworkPolicies."""
        known = parse.pod(pod)
        if not known.addresses:
            return ()
        party = Party(known.addresses[0], known, parse.namespace_labels(space) if space is not None else None)
        tiers = {tier: list(self._of(tier, party, above)) for tier in Tier}
        return (*tiers[Tier.ADMIN], *self._isolating(party, policies), *tiers[Tier.BASELINE])

    def _isolating(self, party: Party, policies: Iterable[Json]) -> Iterator[Applied]:
        for obj in policies:
            one = self._policies.of(obj)
            if one.rules and one.selection.selects(party):
                yield Applied(POLICY, one.name.name, _words(one.rules))

    def _of(self, tier: Tier, party: Party, above: Iterable[Json]) -> Iterator[Applied]:
        every = (one for obj in above if (one := self._above.of(obj)) is not None and one.tier is tier)
        for one in sorted(every, key=lambda one: one.order):
            if one.rules and one.subject.selects(party):
                yield Applied(CLUSTER_POLICY, one.name, _words(one.rules), str(tier))


class _Read(Generic[T]):
    def __init__(self, read: Callable[[Json], T]) -> None:
        self._read, self._kept = read, dict[tuple[str, str], T]()

    def of(self, obj: Json) -> T:
        meta = obj["metadata"]
        key = (str(meta.get("uid")), str(meta.get("resourceVersion")))
        if key not in self._kept:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[key] = self._read(obj)
        return self._kept[key]


def _words(directions: Iterable[Direction]) -> str:
    return ", ".join(one.lower() for one in directions)
