"""What our load balancer daemons have decided about a Service, by the Leases that they write. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cli.explain.facts import Facts, balancer_addresses, key
from cli.explain.problems import Problem, kubectl, ours
from loadbalancer.model import Problem as Lack
from loadbalancer.model import Row, Service
from loadbalancer.plan import parse, pool, table
from loadbalancer.plan.allocate import allocate
from nodelib.errors import Invalid
from nodelib.json_values import Json, object_or_empty


def runs(facts: Facts) -> bool:
    """Whether the daemons have ever run in this cluster."""
    return bool(facts.leases)


def is_ours(service: Json) -> bool:
    return parse.service(service).ours


def lack(service: Json, facts: Facts) -> Lack | None:
    """Why the leader cannot give the Service what it asks for; None if it can, or if it has not said so yet."""
    return facts.once("lacks", lambda: _lacks(facts)).get(parse.service(service).uid)


def _lacks(facts: Facts) -> Mapping[str, Lack]:
    """By the Service's uid. All Services are decided on together."""
    lease = _table_lease(facts.leases)
    notes = object_or_empty(object_or_empty(lease.get("metadata")).get("annotations"))
    try:
        addresses = pool.parse([str(notes.get(table.POOL) or "")])
    except Invalid:
        return {}
    if not addresses.ranges:
        return {}
    before = {address: row.uids for address, row in table.of_lease(lease).rows.items()}
    every: list[Service] = [parse.service(one) for one in facts.services]
    return allocate(every, before, addresses).problems


def announcers(service: Json, facts: Facts) -> dict[str, str]:
    """The node that announces each of the Service's addresses, "" for none; empty where the addresses are not ours."""
    rows = facts.once("rows", lambda: _rows(facts))
    uid = str(service["metadata"].get("uid") or "")
    return {one: rows[one].node for one in balancer_addresses(service) if one in rows and uid in rows[one].uids}


def announcer(address: str, facts: Facts) -> str | None:
    """The node that announces an address, "" if none does; None for an address that is not one of ours."""
    row = facts.once("rows", lambda: _rows(facts)).get(address)
    return row.node if row is not None else None


def _rows(facts: Facts) -> Mapping[str, Row]:
    """The table of the daemons, by address."""
    return {str(address): row for address, row in table.of_lease(_table_lease(facts.leases)).rows.items()}


def announced(service: Json, facts: Facts) -> str:
    """The addresses and their nodes as a phrase, "" without any."""
    found = announcers(service, facts).items()
    return ", ".join(f"{address} is announced by {node or 'no node'}" for address, node in found)


def unannounced(service: Json, facts: Facts) -> Iterator[Problem]:
    """Addresses that nobody on the link answers for."""
    silent = [address for address, node in announcers(service, facts).items() if not node]
    if not silent:
        return
    namespace, name = key(service)
    if (service.get("spec") or {}).get("externalTrafficPolicy") == "Local":
        patch = kubectl(namespace, "patch", "service", name, "-p", '{"spec":{"externalTrafficPolicy":"Cluster"}}')
        yield Problem(
            "NotAnnounced",
            f"No node announces {', '.join(silent)}: with externalTrafficPolicy Local only a node with a ready endpoint"
            " of the Service may, and no live one has any.",
            f"Mend its pods, or let every node announce it: {patch}.",
        )
    else:
        yield Problem(
            "NotAnnounced",
            f"No node announces {', '.join(silent)}: no load balancer daemon has been heard of.",
            f"{ours('status')} shows whether they run; loadbalancer.log of a node says why not.",
        )


def _table_lease(leases: Iterable[Json]) -> Json:
    return next((one for one in leases if one["metadata"]["name"] == table.LEASE), {})
