"""When a pod's scheduler queued it and bound it, as `up`'s scheduler writes it on pods of a cluster that traces.

controlplane/go/cluster/timedbinder writes the annotations. Anybody who may create pods can write them too, on a pod
that names its node: such a pod only bends its own trace, within the second that the API says and the node's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodelib.json_values import Json, object_or_empty
from nodelib.kube.times import time_or

_SOON = 2.0  # seconds after which a pod is queued: up to one that the API leaves out, and its way to the scheduler
_QUEUED, _BOUND = "nodewright.io/queued-at", "nodewright.io/bound-at"


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Wall seconds."""

    queued: float
    bound: float

    def began(self, created: float) -> float:
        """When the pod was made. The API's time of it is whole: the scheduler's is better, unless the pod had been
        there before the scheduler."""
        return self.queued if self.queued - created < _SOON else created


def scheduled_of(meta: Json, created: float, seen: float) -> Scheduled | None:
    """None: nobody wrote it, or it cannot be. `created`: by the API, 0 if unknown; `seen`: by the node."""
    written: Mapping[str, object] = object_or_empty(meta.get("annotations"))
    queued, bound = (time_or(0.0, written.get(name)) for name in (_QUEUED, _BOUND))
    return Scheduled(queued, bound) if 0.0 < created <= queued <= bound <= seen else None
