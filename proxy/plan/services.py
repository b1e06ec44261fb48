"""A Service object becomes its service ports, per family.

Follows upstream pkg/proxy serviceport.go and servicechangetracker.go. What is malformed is left out and
reported as a Problem: a bad port never takes the other ports, or other Services, with it.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TypeGuard

from nodelib.firewall.objects import Family
from nodelib.json_values import Json, object_or_empty, objects_in
from proxy.model import PROTOCOLS, IPNetwork, NamespacedName, Problem, ServicePort, ServicePortName

# The API server lets nothing else through; checked because names end up in rule text.
_NAME = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9._]*[a-zA-Z0-9])?", re.ASCII)
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_PLAIN_IPV4 = re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}", re.ASCII)
_LONGEST_AFFINITY = 86400


def parse_service(service: Json, family: Family) -> tuple[dict[ServicePortName, ServicePort], list[Problem]]:
    """Service ports of `family`; none for headless, ExternalName and other-family Services."""
    problems: list[Problem] = []
    spec = object_or_empty(service.get("spec"))
    name = service_name(service)
    obj = f"Service {name}"
    if not (_NAME.fullmatch(name.namespace) and _NAME.fullmatch(name.name)):
        return {}, [Problem(obj, "its name or namespace is not one that Kubernetes allows")]
    if spec.get("type") == "ExternalName":
        return {}, []
    cluster_ip = _cluster_ip(spec, family)
    if not cluster_ip:
        return {}, []
    address = parse_ip(cluster_ip)
    if address is None or family_of(address) is not family:
        return {}, [Problem(obj, f"clusterIP {cluster_ip!r} is not an {family} address")]
    common = _common(obj, spec, object_or_empty(service.get("status")), family, problems)
    ports: dict[ServicePortName, ServicePort] = {}
    for entry in objects_in(spec.get("ports")):
        port = _port(obj, name, entry, address, common, problems)
        if port is not None:
            ports[port.name] = port
    return ports, problems


def service_name(service: Json) -> NamespacedName:
    meta = object_or_empty(service.get("metadata"))
    return NamespacedName(str(meta.get("namespace") or ""), str(meta.get("name") or ""))


def _port(
    obj: str, service: NamespacedName, entry: Json, address: str, common: Json, problems: list[Problem]
) -> ServicePort | None:
    label = entry.get("name") or ""
    protocol = entry.get("protocol") or "TCP"
    number, node_port = entry.get("port"), entry.get("nodePort") or 0
    if label and not (isinstance(label, str) and _NAME.fullmatch(label)):
        problems.append(Problem(obj, f"port name {label!r} is not one that Kubernetes allows"))
        return None
    if protocol not in PROTOCOLS:
        problems.append(Problem(obj, f"port {label!r}: protocol {protocol!r} is not TCP, UDP or SCTP"))
        return None
    if not is_port(number) or not (node_port == 0 or is_port(node_port)):
        problems.append(Problem(obj, f"port {label!r}: port {number!r}, nodePort {node_port!r} is out of range"))
        return None
    return ServicePort(ServicePortName(service, label, protocol), address, number, node_port, **common)


def _common(obj: str, spec: Json, status: Json, family: Family, problems: list[Problem]) -> Json:
    """What all ports of a Service share."""
    kind = spec.get("type") or "ClusterIP"
    external_ips = _addresses(obj, "externalIPs", spec.get("externalIPs"), family, problems)
    ingress = objects_in(object_or_empty(status.get("loadBalancer")).get("ingress"))
    # ipMode Proxy: the load balancer is to be reached, not short-circuited.
    vips = [entry.get("ip") for entry in ingress if entry.get("ip") and entry.get("ipMode", "VIP") in (None, "VIP")]
    external = kind in ("NodePort", "LoadBalancer") or bool(external_ips)
    local = external and spec.get("externalTrafficPolicy") == "Local"
    health = 0
    if kind == "LoadBalancer" and local:
        health = spec.get("healthCheckNodePort") or 0
        if not is_port(health):
            problems.append(Problem(obj, f"healthCheckNodePort {health!r}: no health check is served"))
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
    return seconds if isinstance(seconds, int) and 0 < seconds <= _LONGEST_AFFINITY else 10800


def _addresses(obj: str, field: str, given: object, family: Family, problems: list[Problem]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for text in given if isinstance(given, list) else []:
        address = parse_ip(text)
        if address is None:
            if str(text).strip():
                problems.append(Problem(obj, f"{field}: {text!r} is not an IP address"))
        elif family_of(address) is family:
            found[address] = None
    return tuple(found)


def _ranges(obj: str, given: object, family: Family, problems: list[Problem]) -> tuple[str, ...]:
    found: list[str] = []
    for text in given if isinstance(given, list) else []:
        network = parse_cidr(text)
        if network is None:
            if str(text).strip():
                problems.append(Problem(obj, f"loadBalancerSourceRanges: {text!r} is not a CIDR"))
        elif network.version == (4 if family is Family.IPV4 else 6):
            if network.prefixlen == 0:
                return ()  # everybody is allowed: the same as no ranges
            found.append(str(network))
    return tuple(found)


def parse_ip(text: object) -> str | None:
    """Canonical text of an address. Leading zeros in IPv4 are taken as decimal, as upstream's ParseIPSloppy."""
    if not isinstance(text, str):
        return None
    if _PLAIN_IPV4.fullmatch(text):
        return text  # nearly always, and twenty times as fast
    candidate = text.strip()
    if "." in candidate and ":" not in candidate:
        candidate = ".".join([part.lstrip("0") or "0" if part.isdigit() else part for part in candidate.split(".")])
    try:
        address = ipaddress.ip_address(candidate)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return None
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
    return str(address)


def parse_cidr(text: object) -> IPNetwork | None:
    """A network, host bits cleared; None when it is not one."""
    if not isinstance(text, str) or "/" not in text:
        return None
    host, _, bits = text.strip().partition("/")
    address = parse_ip(host)
    if address is None or not (bits.isascii() and bits.isdigit()):
        return None
    try:
        return ipaddress.ip_network(f"{address}/{bits}", strict=False)
    except ValueError:
        return None


def family_of(address: str) -> Family:
    return Family.IPV6 if ":" in address else Family.IPV4


def is_port(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and 0 < number < 65536
