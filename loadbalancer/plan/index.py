"""What is known of Services and their endpoints. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from loadbalancer.model import Name, Service
from loadbalancer.plan import parse
from loadbalancer.plan.place import Endpoints
from nodelib.json_values import Json

_NOTHING = Endpoints()
# Names of nodes in the slices of one Service, which whoever writes those chooses: as many nodes as a cluster may have.
_MOST_NODES = 5000


class Index:
    """Changes come in as the watches bring them. Services and slices may be many: no question goes through them all."""

    def __init__(self) -> None:
        self._services: dict[Name, Service] = {}
        self._ours = self._local = 0
        self._slices: dict[Name, tuple[Name, Endpoints]] = {}
        self._of_service: dict[Name, _Sum] = {}

    @property
    def services(self) -> Mapping[Name, Service]:
        return self._services

    @property
    def wanted(self) -> bool:
        """Whether there is a Service that is ours."""
        return self._ours > 0

    @property
    def needs_endpoints(self) -> bool:
        return self._local > 0

    def service(self, kind: str, obj: Json) -> None:
        old = self._services.pop(parse.name_of(obj), None)
        if old is not None:
            self._count(old, -1)
        if kind != "DELETED":
            one = parse.service(obj)
            self._services[one.name] = one
            self._count(one, 1)

    def slice(self, kind: str, obj: Json) -> None:
        key = parse.name_of(obj)
        known = self._slices.pop(key, None)
        if known is not None:
            there = self._of_service[known[0]]
            there.remove(known[1])
            if not there.slices:
                del self._of_service[known[0]]
        service, ready, serving = parse.endpoint_nodes(obj)
        if kind != "DELETED" and service is not None:
            part = Endpoints(ready, serving)
            self._slices[key] = service, part
            self._of_service.setdefault(service, _Sum()).add(part)

    def endpoints(self, service: Name) -> Endpoints:
        there = self._of_service.get(service)
        return there.endpoints() if there is not None else _NOTHING

    def _count(self, service: Service, by: int) -> None:
        self._ours += by if service.ours else 0
        self._local += by if service.ours and service.local else 0


@dataclass(slots=True)
class _Sum:
    """The endpoints of all slices of a Service."""

    slices: int = 0
    ready: Counter[str] = field(default_factory=Counter)
    serving: Counter[str] = field(default_factory=Counter)
    summary: Endpoints | None = None

    def add(self, part: Endpoints) -> None:
        self.slices, self.summary = self.slices + 1, None
        self.ready.update(part.ready)
        self.serving.update(part.serving)

    def remove(self, part: Endpoints) -> None:
        self.slices, self.summary = self.slices - 1, None
        for counts, gone in ((self.ready, part.ready), (self.serving, part.serving)):
            for node, count in gone.items():
                counts[node] -= count
                if not counts[node]:
                    del counts[node]

    def endpoints(self) -> Endpoints:
        """A copy, which is planned from beside the loop. Of too many nodes some."""
        if self.summary is None:
            self.summary = Endpoints(_some(self.ready), _some(self.serving))
        return self.summary


def _some(counts: Mapping[str, int]) -> Mapping[str, int]:
    return dict(islice(counts.items(), _MOST_NODES))
