"""The leader's table as the text of an annotation. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from loadbalancer.model import Address, Row, Service, Table
from nodelib.addresses import parse_address
from nodelib.json_values import Json, compact, decode, object_or_empty

LEASE = "addresses"  # the Lease whose annotations these are
ANNOTATION = "nodewright.io/addresses"
POOL = "nodewright.io/pool"  # the pool from which the leader takes them
LARGEST = 240 << 10  # bytes; the API server takes annotations of 256 KiB in all
_MOST_ROWS = 2000


def table(owners: Mapping[Address, tuple[Service, ...]], nodes: Mapping[Address, str]) -> Table:
    return Table(
        {address: Row(tuple(one.uid for one in who), nodes.get(address, "")) for address, who in owners.items()}
    )


def to_text(given: Table) -> str:
    return compact({str(one): {"node": row.node, "services": list(row.uids)} for one, row in given.rows.items()})


def of_lease(lease: Json) -> Table:
    """The table in a Lease."""
    notes = object_or_empty(object_or_empty(lease.get("metadata")).get("annotations"))
    return from_text(notes.get(ANNOTATION))


def from_text(text: object) -> Table:
    """What is not readable of it is left out."""
    if not isinstance(text, str) or len(text) > 2 * LARGEST:
        return Table()
    try:
        entries = list(object_or_empty(decode(text)).items())[:_MOST_ROWS]
    except ValueError:
        return Table()
    rows = {}
    for key, value in entries:
        try:
            address = parse_address(key)
        except ValueError:
            continue
        entry = object_or_empty(value)
        uids = entry.get("services")
        listed = tuple(one for one in uids if isinstance(one, str)) if isinstance(uids, list) else ()
        rows[address] = Row(listed, str(entry.get("node") or ""))
    return Table(rows)
