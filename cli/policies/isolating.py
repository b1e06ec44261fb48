"""Which NetworkPolicies isolate a pod, as the policy daemon would say: for the rows of the page of `view`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nodelib.json_values import Json
from policy.model import Party, Policy
from policy.plan import parse

_KEPT = 4096  # policies that are kept as they were read


class Isolating:
    """Remembers policies as it has read them: each of them is asked about for every pod of its namespace."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], Policy] = {}

    def __call__(self, pod: Json, policies: Iterable[Json]) -> Mapping[str, str]:
        """By name of the policy, the directions: {"deny": "ingress, egress"}."""
        known = parse.pod(pod)
        return dict(self._found(Party(known.addresses[0], known), policies)) if known.addresses else {}

    def _found(self, party: Party, policies: Iterable[Json]) -> Iterator[tuple[str, str]]:
        for one in policies:
            policy = self._policy(one)
            if policy.rules and policy.selection.selects(party):
                yield policy.name.name, ", ".join(direction.lower() for direction in policy.rules)

    def _policy(self, obj: Json) -> Policy:
        meta = obj["metadata"]
        key = (str(meta.get("uid")), str(meta.get("resourceVersion")))
        found = self._read.get(key)
        if found is None:
            if len(self._read) >= _KEPT:
                self._read.clear()
            found = self._read[key] = parse.policy(obj)[0]
        return found
