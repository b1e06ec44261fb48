"""What is known of Services and their endpoints. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from loadbalancer.model import Name, Service
from loadbalancer.plan import parse
from loadbalancer.plan.place import Endpoints
from nodelib.json_values import Json


class Index:
    """Changes come in as the watches bring them."""

    def __init__(self) -> None:
        self._services: dict[Name, Service] = {}
        self._slices: dict[Name, tuple[Name, Endpoints]] = {}
        self._of_service: dict[Name, set[Name]] = {}

    @property
    def services(self) -> Mapping[Name, Service]:
        return self._services

    @property
    def wanted(self) -> bool:
        """Whether there is a Service that is ours."""
        return any(one.ours for one in self._services.values())

    @property
    def needs_endpoints(self) -> bool:
        return any(one.ours and one.local for one in self._services.values())

    def service(self, kind: str, obj: Json) -> None:
        if kind == "DELETED":
            self._services.pop(parse.name_of(obj), None)
        else:
            one = parse.service(obj)
            self._services[one.name] = one

    def slice(self, kind: str, obj: Json) -> None:
        key = parse.name_of(obj)
        known = self._slices.pop(key, None)
        if known is not None:
            self._of_service[known[0]].discard(key)
            if not self._of_service[known[0]]:
                del self._of_service[known[0]]
        service, ready, serving = parse.endpoint_nodes(obj)
        if kind != "DELETED" and service is not None:
            self._slices[key] = service, Endpoints(ready, serving)
            self._of_service.setdefault(service, set()).add(key)

    def endpoints(self, service: Name) -> Endpoints:
        ready: Counter[str] = Counter()
        serving: Counter[str] = Counter()
        for key in self._of_service.get(service, ()):
            part = self._slices[key][1]
            ready.update(part.ready)
            serving.update(part.serving)
        return Endpoints(ready, serving)
