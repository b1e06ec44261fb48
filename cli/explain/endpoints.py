"""The endpoints of a Service as a node uses them, and why one is left out. Pure.

The proxy's own code decides (proxy.plan.topology). This module puts its decision into words and gives the reasons:
which pods the selector finds, and what keeps each of them from being an endpoint.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from cli.explain.facts import Facts, alive, key, pod_addresses, ready_addresses, title
from cli.explain.listening import Listening, silence
from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.model import Endpoint, NodeFacts, ServicePort, ServicePortName
from proxy.plan.node import parse_node
from proxy.plan.services import parse_service
from proxy.plan.slices import merge, parse_slice
from proxy.plan.topology import Categories, categorize

_LOOKED_AT = 32  # endpoints of a slice whose listeners are read
_MOST_LOOKS = 2000  # endpoints times ports of a Service: whoever writes its slices may give each a thousand ports
_SHOWN = 5  # names of ports of a pod


@dataclass(frozen=True, slots=True)
class EndpointView:
    """One endpoint of a port as a node sees it; `left_out` says why it is not used, "" when it is."""

    to: str
    name: str
    node: str
    state: str
    left_out: str


@dataclass(frozen=True, slots=True)
class PortView:
    """One port of a Service as a node sees it."""

    port: ServicePort
    endpoints: tuple[EndpointView, ...]
    problem: str  # why it cannot be reached from here, "" when it can


def ports(service: Json, facts: Facts, node: str, family: Family = Family.IPV4) -> list[PortView]:
    """Every port of the Service in `family`, with its endpoints, as `node` sees them."""
    found, _ = parse_service(service, family)
    slices = [parsed for parsed in (parse_slice(one, node)[0] for one in facts.slices_of(service)) if parsed]
    endpoints, _ = merge([one for one in slices if one.family is family])
    here = _node(facts, node)
    return [_port(service, port, endpoints.get(name, ()), facts, here) for name, port in found.items()]


@dataclass(frozen=True, slots=True)
class Silent:
    """A ready endpoint where nobody listens. `entry`: which of the Service's ports; `why`: the end of a sentence."""

    name: str
    address: str
    port: int
    protocol: str
    entry: int
    why: str


def silent_endpoints(service: Json, facts: Facts, listening: Listening) -> list[Silent]:
    """The ready endpoints where nobody listens on the port that the Service sends packets to."""
    entries: dict[str, int] = {}
    for number, one in enumerate((service.get("spec") or {}).get("ports") or []):
        entries.setdefault(str(one.get("name") or ""), number)
    found: list[Silent] = []
    for address, port in islice(_pairs(facts.slices_of(service), entries), _MOST_LOOKS):
        number, protocol = int(port["port"]), str(port.get("protocol") or "TCP").lower()
        if why := silence(listening(address), address, number, protocol):
            pod = facts.pod_behind(service, address)
            name = f"pod {title(pod)}" if pod is not None else facts.named(address)
            found.append(Silent(name, address, number, protocol, entries[str(port.get("name") or "")], why))
    return found


def _pairs(slices: Iterable[Json], entries: Container[str]) -> Iterator[tuple[str, Json]]:
    """The ready endpoints of slices with each port that the Service has, too."""
    for one in slices:
        ports = [port for port in one.get("ports") or [] if port.get("port") and str(port.get("name") or "") in entries]
        for address in sorted(ready_addresses([one]))[:_LOOKED_AT] if ports else ():
            yield from ((address, port) for port in ports)


def selector_of(service: Json) -> dict[str, str]:
    return dict((service.get("spec") or {}).get("selector") or {})


def chosen_pods(service: Json, facts: Facts) -> list[Json]:
    """The pods that its selector finds, ended ones too."""
    selector, namespace = selector_of(service), key(service)[0]

    def chosen() -> list[Json]:
        return [pod for pod in facts.pods_like(selector, namespace) if _selected(pod, selector)]

    return facts.once(("chosen", *_choice(service)), chosen)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A pod that the selector finds and that is no endpoint. `why` is the end of a sentence about it."""

    pod: str
    reason: str
    why: str


def left_out(service: Json, facts: Facts, most: int | None = None) -> tuple[list[LeftOut], int]:
    """The pods of a Service that are not among its endpoints, the first ones or all, and how many there are."""
    # A slice without ports is one of a Service without ports, or of pods that do not name the port.
    portless = not (service.get("spec") or {}).get("ports")
    ready = ready_addresses(one for one in facts.slices_of(service) if portless or one.get("ports"))
    pods = living_pods(service, facts)
    by_address = facts.once(("addresses", *_choice(service)), lambda: _by_address(pods))
    used = {number for address in ready for number in by_address.get(address, ())}
    outside = (pod for number, pod in enumerate(pods) if number not in used)
    return [_left_out_pod(pod, service) for pod in islice(outside, most)], len(pods) - len(used)


def living_pods(service: Json, facts: Facts) -> list[Json]:
    """The pods that its selector finds and that have not ended."""
    return facts.once(("living", *_choice(service)), lambda: list(filter(alive, chosen_pods(service, facts))))


def _choice(service: Json) -> tuple[str, frozenset[tuple[str, str]]]:
    """What decides which pods are chosen: many Services may choose the same ones, and there may be many of both."""
    return key(service)[0], frozenset(selector_of(service).items())


def _by_address(pods: Iterable[Json]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, pod in enumerate(pods):
        for address in pod_addresses(pod):
            found.setdefault(address, []).append(number)
    return found


def _left_out_pod(pod: Json, service: Json) -> LeftOut:
    if late := unready(pod):
        return LeftOut(title(pod), "PodNotReady", late)
    wanted = [one.get("targetPort") for one in (service.get("spec") or {}).get("ports") or []]
    named = [str(one) for one in wanted if isinstance(one, str)]
    if named:
        boxes = (pod.get("spec") or {}).get("containers") or []
        there = [str(one["name"]) for box in boxes for one in box.get("ports") or [] if one.get("name")]
        said = f"is ready, but none of its containers names a port {' or '.join(named)}"
        return LeftOut(title(pod), "NoSuchPort", f"{said} (they name {', '.join(there[:_SHOWN])})" if there else said)
    return LeftOut(
        title(pod), "NotListed", "is ready, but in no EndpointSlice yet (kube-controller-manager writes them)"
    )


def missing(service: Json, facts: Facts) -> list[str]:
    """Why a Service has no endpoints, or lacks some of its pods: one line for each pod that is not an endpoint."""
    selector = selector_of(service)
    if not selector:
        if facts.slices_of(service):
            return []
        return ["it has no selector, and no EndpointSlice was created for it"]
    if not chosen_pods(service, facts):
        wanted = ",".join(f"{name}={value}" for name, value in selector.items())
        return [f"no pod in namespace {key(service)[0]} has the labels {wanted}"]
    return [f"pod {one.pod}: {one.why}" for one in left_out(service, facts)[0]]


def unready(pod: Json) -> str:
    """What keeps a pod from being ready, "" when it is."""
    meta, status = pod["metadata"], pod.get("status") or {}
    if meta.get("deletionTimestamp"):
        return f"has been terminating since {meta['deletionTimestamp']}"
    conditions = {one["type"]: one for one in status.get("conditions") or []}
    ready = conditions.get("Ready") or {}
    if ready.get("status") == "True":
        return ""
    if not (pod.get("spec") or {}).get("nodeName"):
        scheduled = conditions.get("PodScheduled") or {}
        return f"is not on a node yet: {scheduled.get('message') or 'it has not been scheduled'}"
    waiting = []
    for one in status.get("containerStatuses") or []:
        state = one.get("state") or {}
        if one.get("ready"):
            continue
        word = (state.get("waiting") or state.get("terminated") or {}).get("reason")
        waiting.append(f"container {one['name']} {word or 'has not passed its readiness probe'}")
    return "is not ready: " + ("; ".join(waiting) or str(ready.get("reason") or status.get("phase") or "no status yet"))


def _port(service: Json, port: ServicePort, endpoints: Iterable[Endpoint], facts: Facts, here: NodeFacts) -> PortView:
    every = tuple(endpoints)
    found = categorize(every, port, here.name, here.zone)
    reachable = frozenset(found.reachable)
    shown = tuple([_view(service, one, found, facts, here, used=one in reachable) for one in every])
    return PortView(port, shown, _problem(port.name, port, found, every, here))


def _view(
    service: Json, one: Endpoint, found: Categories, facts: Facts, here: NodeFacts, *, used: bool
) -> EndpointView:
    pod = facts.pod_behind(service, one.ip)
    state = "ready" if one.ready else "terminating, still serving" if one.serving and one.terminating else "not ready"
    if one.terminating and not one.serving:
        state = "terminating, no longer serving"
    reason = "" if used else _left_out(one, found, here, pod)
    name = f"pod {title(pod)}" if pod is not None else facts.names.get(one.ip, "")
    node = str((pod or {}).get("spec", {}).get("nodeName", "")) if pod is not None else ""
    return EndpointView(str(one), name, node, state, reason)


def _left_out(one: Endpoint, found: Categories, here: NodeFacts, pod: Json | None) -> str:
    if not one.ready and not (one.serving and one.terminating):
        return unready(pod) if pod is not None and unready(pod) else "its EndpointSlice says that it is not ready"
    if not one.ready:
        return "it is terminating, and other endpoints are ready"
    hinted = sorted(one.zone_hints | one.node_hints)
    if hinted:
        return f"topology hints assign it to {', '.join(hinted)}; this node is {here.name} in zone {here.zone or '-'}"
    return f"traffic policy Local: it is not on {here.name}"


def _problem(
    name: ServicePortName, port: ServicePort, found: Categories, every: tuple[Endpoint, ...], here: NodeFacts
) -> str:
    if not every:
        return f"{name} has no endpoints"
    if not found.any:
        return f"{name} has {len(every)} endpoint{'s' * (len(every) > 1)}, and none is ready"
    if port.internal_local and not found.local:
        return f"internalTrafficPolicy Local, and no ready endpoint of {name} is on {here.name}"
    if port.external_local and port.externally_accessible and not found.local:
        return f"externalTrafficPolicy Local, and no ready endpoint of {name} is on {here.name}: dropped from outside"
    return ""


def _node(facts: Facts, name: str) -> NodeFacts:
    obj = next((node for node in facts.nodes if key(node)[1] == name), None)
    return parse_node(obj, name)


def _selected(pod: Json, selector: Json) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in selector.items())
