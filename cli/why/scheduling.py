"""Which objects stand in the way of a pod that no node takes: what the scheduler's message leaves out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from itertools import islice

from cli.why.model import Facts, namespace_of, spec_of
from nodelib import quantity
from nodelib.errors import Invalid
from nodelib.json_values import Json, object_or_empty, objects_in
from nodelib.text import first_of, one_line

_INSUFFICIENT = re.compile(r"Insufficient (cpu|memory)\b")
_SHOWN = 3  # pods that are named
_LOOKED_AT = 100  # of all that have one of the ports
_PORTS = 5  # that are named; a pod may want them all
_TEXT = 200  # bytes of one name


def advice(message: str, pod: Json, facts: Facts) -> str:
    """What to do, with names; "" when the general advice says as much."""
    if "free ports" in message:
        return _ports(pod, facts)
    if "node affinity/selector" in message and "anti-affinity" not in message:
        return _selector(pod, facts)
    if found := _INSUFFICIENT.search(message):
        return _room(found[1], pod, facts)
    return ""


def missing_claims(pod: Json) -> str:
    """The ResourceClaims that the pod names, of which the scheduler says nothing while they do not exist."""
    named = [str(one.get("resourceClaimName") or "") for one in objects_in(spec_of(pod).get("resourceClaims"))]
    return _joined(name for name in named if name)


def _ports(pod: Json, facts: Facts) -> str:
    wanted = sorted(host_ports(pod))
    placed = (one for port in wanted for one in facts.found("pod", "host port", _ports_held, port) if one is not pod)
    holders = {id(one): one for one in islice(placed, _LOOKED_AT)}
    text = f"hostPort {first_of(wanted, _PORTS)} is in use on every node that fits"
    if holders:
        names = _joined(f"{namespace_of(one)}/{one['metadata']['name']}" for one in list(holders.values())[:_SHOWN])
        text += f", by {names}"
    return f"{text}: choose another hostPort, or delete the pod that has it."


def host_ports(pod: Json) -> set[int]:
    boxes = objects_in(spec_of(pod).get("containers"))
    ports = [port.get("hostPort") for box in boxes for port in objects_in(box.get("ports"))]
    return {port for port in ports if isinstance(port, int)}


def _ports_held(pod: Json) -> set[int]:
    return host_ports(pod) if _is_placed(pod) else set()


def _is_placed(pod: Json) -> bool:
    ended = object_or_empty(pod.get("status")).get("phase") in ("Succeeded", "Failed")
    return bool(spec_of(pod).get("nodeName")) and not ended


def _selector(pod: Json, facts: Facts) -> str:
    wanted, nodes = object_or_empty(spec_of(pod).get("nodeSelector")), facts.all("node")
    if not wanted or not nodes or any(_has(node, wanted) for node in nodes):
        return ""
    labels = _joined((f"{key}={value}" for key, value in wanted.items()), " ")
    command = f"kubectl label node {nodes[0]['metadata']['name']} {labels}"
    return f"No node has the labels {labels}: give them to one (`{command}`), or change nodeSelector."


def _room(what: str, pod: Json, facts: Facts) -> str:
    """By the containers' requests alone: what init containers and the pod as a whole ask for is rarely more."""
    boxes = objects_in(spec_of(pod).get("containers"))
    asked = sum((_amount(object_or_empty(box.get("resources")).get("requests"), what) for box in boxes), Decimal())
    nodes = sorted(facts.all("node"), key=lambda one: _amount(_allocatable(one), what))
    if not asked or not nodes:
        return ""
    largest = nodes[-1]
    name, room = (
        one_line(str(largest["metadata"]["name"]), _TEXT),
        one_line(str(_allocatable(largest).get(what)), _TEXT),
    )
    words = f"The pod asks for {what} {_shown(what, asked)}, and"
    if asked > _amount(_allocatable(largest), what):
        cordoned = ", which is cordoned" if spec_of(largest).get("unschedulable") else ""
        return f"{words} no node has more than {room} ({name}{cordoned}). Ask for less {what}, or add a larger node."
    return (
        f"{words} {name} has {room} for all of its pods. Ask for less {what}, delete pods that nobody needs, or"
        f" add a node (`kubectl describe node {name}` shows what its pods ask for)."
    )


def _allocatable(node: Json) -> Json:
    return object_or_empty(object_or_empty(node.get("status")).get("allocatable"))


def _amount(of: object, what: str) -> Decimal:
    try:
        return quantity.parse(str(object_or_empty(of).get(what) or 0))
    except Invalid:
        return Decimal()


def _shown(what: str, amount: Decimal) -> str:
    if what == "memory" and amount % (1 << 20) == 0:
        return f"{amount // (1 << 30)}Gi" if amount % (1 << 30) == 0 else f"{amount // (1 << 20)}Mi"
    return f"{amount.normalize():f}"


def _has(node: Json, labels: Json) -> bool:
    return labels.items() <= object_or_empty(node["metadata"].get("labels")).items()


def _joined(words: Iterable[str], by: str = ", ") -> str:
    return by.join(one_line(word, _TEXT) for word in words)
