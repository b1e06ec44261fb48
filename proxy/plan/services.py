"""Reads a Service object into the service ports of one address family. Pure.

Follows upstream pkg/proxy/serviceport.go and servicechangetracker.go. Anything malformed is left out and reported as
a Problem: a bad port never affects other ports or other Services.
"""

from __future__ import annotations

import re
from typing import TypeGuard

from nodelib.firewall.objects import Family
from nodelib.json_values import Json, object_or_empty, objects_in
from proxy.model import PROTOCOLS, NamespacedName, Problem, ServicePort, ServicePortName
from proxy.plan.addresses import family_of, parse_cidr, parse_ip, special
from proxy.plan.problems import limited, shown

# The API server accepts nothing else. Checked again here because names end up in rule text.
_NAME = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9._]*[a-zA-Z0-9])?", re.ASCII)
_LONGEST_NAME = 63  # of each part: a rule's comment holds all of them, and the kernel refuses more than 255 bytes
_LONGEST_AFFINITY = 86400
# Ports times external addresses and source ranges of one Service; each pair is a rule. Upstream has no limit.
_MOST_PAIRS = 100_000


def parse_service(service: Json, family: Family) -> tuple[dict[ServicePortName, ServicePort], list[Problem]]:
    """The service ports of `family`; none for headless and ExternalName Services and those of the other family."""
    problems: list[Problem] = []
    spec = object_or_empty(service.get("spec"))
    name = service_name(service)
    if not (_is_name(name.namespace) and _is_name(name.name)):
        obj = f"Service {shown(str(name))[1:-1]}"
        return {}, [Problem(obj, "its name or namespace is not one that Kubernetes allows")]
    obj = f"Service {name}"
    if spec.get("type") == "ExternalName":
        return {}, []
    cluster_ip = _cluster_ip(spec, family)
    if not cluster_ip:
        return {}, []
    address = parse_ip(cluster_ip)
    if address is None or family_of(address) is not family:
        return {}, [Problem(obj, f"clusterIP {shown(cluster_ip)} is not an {family} address")]
    if word := special(address):
        return {}, [Problem(obj, f"clusterIP {address} is a {word} address")]
    common = _common(obj, spec, object_or_empty(service.get("status")), family, problems)
    ports: dict[ServicePortName, ServicePort] = {}
    entries = list(objects_in(spec.get("ports")))
    each = sum(len(common[field]) for field in ("external_ips", "load_balancer_ips", "source_ranges"))
    room = _MOST_PAIRS // max(1, each)
    if len(entries) > room:
        text = f"{len(entries) - room} ports are left out: too many for {each} addresses and source ranges"
        problems.insert(0, Problem(obj, text))
    for entry in entries[:room]:
        port = _port(obj, name, entry, address, common, problems)
        if port is not None:
            ports[port.name] = port
    return ports, limited(problems)


def service_name(service: Json) -> NamespacedName:
    meta = object_or_empty(service.get("metadata"))
    return NamespacedName(str(meta.get("namespace") or ""), str(meta.get("name") or ""))


def _port(
    obj: str, service: NamespacedName, entry: Json, address: str, common: Json, problems: list[Problem]
) -> ServicePort | None:
    label = entry.get("name") or ""
    protocol = entry.get("protocol") or "TCP"
    number, node_port = entry.get("port"), entry.get("nodePort") or 0
    if label and not _is_name(label):
        problems.append(Problem(obj, f"port name {shown(label)} is not one that Kubernetes allows"))
        return None
    if protocol not in PROTOCOLS:
        problems.append(Problem(obj, f"port {label!r}: protocol {shown(protocol)} is not TCP, UDP or SCTP"))
        return None
    if not is_port(number) or not (node_port == 0 or is_port(node_port)):
        values = f"port {shown(number)}, nodePort {shown(node_port)}"
        problems.append(Problem(obj, f"port {label!r}: {values} is out of range"))
        return None
    return ServicePort(ServicePortName(service, label, protocol), address, number, node_port, **common)


def _common(obj: str, spec: Json, status: Json, family: Family, problems: list[Problem]) -> Json:
    """Fields that all ports of a Service share."""
    kind = spec.get("type") or "ClusterIP"
    external_ips = _addresses(obj, "externalIPs", spec.get("externalIPs"), family, problems)
    ingress = objects_in(object_or_empty(status.get("loadBalancer")).get("ingress"))
    # With ipMode Proxy, traffic must go through the load balancer: no short circuit.
    vips = [entry.get("ip") for entry in ingress if entry.get("ip") and entry.get("ipMode", "VIP") in (None, "VIP")]
    external = kind in ("NodePort", "LoadBalancer") or bool(external_ips)
    local = external and spec.get("externalTrafficPolicy") == "Local"
    health = 0
    if kind == "LoadBalancer" and local:
        health = spec.get("healthCheckNodePort") or 0
        if not is_port(health):
            problems.append(Problem(obj, f"healthCheckNodePort {shown(health)}: no health check is served"))
            health = 0
    return {
        "external_ips": external_ips,
        "load_balancer_ips": _addresses(obj, "status.loadBalancer.ingress", vips, family, problems),
        "source_ranges": _ranges(obj, spec.get("loadBalancerSourceRanges"), family, problems),
        "affinity_seconds": _affinity(spec),
        "health_check_node_port": health,
        "external_local": local,
        "internal_local": spec.get("internalTrafficPolicy") == "Local",
    }


def _cluster_ip(spec: Json, family: Family) -> str:
    main = spec.get("clusterIP") or ""
    if main in ("", "None"):
        return ""
    families = spec.get("ipFamilies") or []
    if not isinstance(families, list) or not families:
        return str(main) if (":" in str(main)) == (family is Family.IPV6) else ""
    every = spec.get("clusterIPs") or [main]
    for index, one in enumerate(families):
        if one == family.value and isinstance(every, list) and index < len(every):
            return str(every[index])
    return ""


def _affinity(spec: Json) -> int:
    if spec.get("sessionAffinity") != "ClientIP":
        return 0
    client = object_or_empty(object_or_empty(spec.get("sessionAffinityConfig")).get("clientIP"))
    seconds = client.get("timeoutSeconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        return 10800
    return seconds if 0 < seconds <= _LONGEST_AFFINITY else 10800


def _addresses(obj: str, field: str, given: object, family: Family, problems: list[Problem]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for text in given if isinstance(given, list) else []:
        address = parse_ip(text)
        if address is None:
            if str(text).strip():
                problems.append(Problem(obj, f"{field}: {shown(text)} is not an IP address"))
        elif word := special(address):
            if family_of(address) is family:
                problems.append(Problem(obj, f"{field}: {shown(text)} is a {word} address"))
        elif family_of(address) is family:
            found[address] = None
    return tuple(found)


def _ranges(obj: str, given: object, family: Family, problems: list[Problem]) -> tuple[str, ...]:
    found: list[str] = []
    for text in given if isinstance(given, list) else []:
        network = parse_cidr(text)
        if network is None:
            if str(text).strip():
                problems.append(Problem(obj, f"loadBalancerSourceRanges: {shown(text)} is not a CIDR"))
        elif network.version == (4 if family is Family.IPV4 else 6):
            if network.prefixlen == 0:
                return ()  # everybody is allowed, as without ranges
            found.append(str(network))
    return tuple(found)


def _is_name(text: object) -> bool:
    return isinstance(text, str) and len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


def is_port(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and 0 < number < 65536
