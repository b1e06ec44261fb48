"""What the leader writes into the status of Services, and what it says in events. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from loadbalancer.model import Address, Service
from loadbalancer.plan.allocate import Allocation
from nodelib.json_values import Json


@dataclass(frozen=True, slots=True)
class StatusWrite:
    """The addresses that a Service's status is to have."""

    service: Service
    addresses: tuple[Address, ...]

    @property
    def patch(self) -> Json:
        """A merge patch that the API server refuses if the Service has changed since, or is another one by now."""
        ingress = [{"ip": str(one), "ipMode": "VIP"} for one in self.addresses]
        return {
            "metadata": {"resourceVersion": self.service.version},
            "status": {"loadBalancer": {"ingress": ingress or None}},
        }


def status_writes(
    services: Iterable[Service], allocation: Allocation, before: Mapping[Address, tuple[str, ...]]
) -> Iterator[StatusWrite]:
    """`before`: the UIDs of each address in the table. A Service that was never ours is left alone."""
    had: dict[str, set[Address]] = {}
    for address, uids in before.items():
        for uid in uids:
            had.setdefault(uid, set()).add(address)
    for one in services:
        if one.ours:
            wanted = allocation.of(one)
            if wanted != one.current or not one.clean:
                yield StatusWrite(one, wanted)
        elif given := had.get(one.uid, set()) & set(one.current):
            yield StatusWrite(one, tuple(address for address in one.current if address not in given))
