"""The CNI specification as values: arguments, configuration, result, error. Pure.

Follows https://www.cni.dev/docs/spec/ (1.1.0), and 0.3.1 to 1.0.0 where their results differ. Everything
that reaches the plugin from outside passes through here first, so that a hostile name or a corrupt
configuration ends in a coded error before anything on the node has been touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

from cni.model import Address, AddressRange, AttachmentKey, Interface, Network, PortMapping, RangeSet, Route
from nodelib.errors import NodewrightError
from nodelib.json_values import Json

CURRENT = "1.1.0"
SUPPORTED = ("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
SINCE = {"ADD": "0.1.0", "DEL": "0.1.0", "VERSION": "0.1.0", "CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
TYPE = "nodewright"

# Error codes of the specification, section "Error"; 100 and above are the plugin's own.
INCOMPATIBLE_VERSION = 1
UNSUPPORTED_FIELD = 2
UNKNOWN_CONTAINER = 3
INVALID_ENVIRONMENT = 4
IO_FAILURE = 5
DECODING_FAILURE = 6
INVALID_CONFIG = 7
INVALID_NETNS = 8
TRY_AGAIN_LATER = 11
NOT_AVAILABLE = 50
KERNEL_REFUSED = 100
RANGE_EXHAUSTED = 101
CHECK_FAILED = 102
INTERNAL = 999

_CONTAINER_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")
_NETWORK_NAME = _CONTAINER_ID
_LONGEST_ID = 200  # it becomes part of file names
_LONGEST_IFNAME = 15  # IFNAMSIZ - 1


class CNIError(NodewrightError):
    """An error for the runtime: `code` of the specification, `details` what to do about it."""

    def __init__(self, code: int, message: str, *, details: str = "", step: str = "", obj: str = "") -> None:
        super().__init__(message, action=details, step=step, obj=obj)
        self.code = code

    def as_json(self, version: str) -> Json:
        head = ": ".join(part for part in (self.obj, self.step, self.message) if part)
        body: Json = {"cniVersion": version, "code": self.code, "msg": f"nodewright: {head}"}
        if self.action:
            body["details"] = self.action
        return body


@dataclass(frozen=True, slots=True)
class Args:
    """The environment of one call. `netns` is the path given; the open file travels beside it."""

    command: str
    container_id: str = ""
    ifname: str = ""
    netns: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> AttachmentKey:
        return AttachmentKey(self.container_id, self.ifname)

    @property
    def pod(self) -> str:
        """namespace/name when a Kubernetes runtime calls, else ""."""
        namespace, name = self.extra.get("K8S_POD_NAMESPACE", ""), self.extra.get("K8S_POD_NAME", "")
        return f"{namespace}/{name}" if name else ""


@dataclass(frozen=True, slots=True)
class NetConf:
    """The plugin's configuration. Own keys: bridge, mtu, hairpinMode, ipMasq, nonMasqueradeCIDRs, firewall, dataDir."""

    cni_version: str
    name: str
    bridge: str = "nw0"
    mtu: int = 0
    hairpin: bool = True
    masquerade: bool = True
    non_masquerade: tuple[Network, ...] = ()
    firewall: str = "iptables"
    data_dir: str = "/var/lib/cni/nodewright"
    ranges: tuple[RangeSet, ...] = ()
    routes: tuple[Route, ...] = ()
    port_mappings: tuple[PortMapping, ...] = ()
    ingress: tuple[int, int] = (0, 0)  # to the pod: bits a second, burst in bits; 0: no limit
    egress: tuple[int, int] = (0, 0)
    prev_result: Json | None = None
    valid_attachments: frozenset[AttachmentKey] | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A success result of ADD in the terms of 1.x; `as_json` writes it for the version asked for."""

    interfaces: tuple[Json, ...]
    ips: tuple[Json, ...]
    routes: tuple[Json, ...]
    dns: Json = field(default_factory=dict)

    def as_json(self, version: str) -> Json:
        ips = [dict(ip) for ip in self.ips]
        if _number(version) < (1, 0, 0):
            for ip in ips:  # "version" was required until 0.4.0 and is gone since 1.0.0
                ip["version"] = "6" if ":" in str(ip["address"]) else "4"
        body: Json = {
            "cniVersion": version,
            "interfaces": [dict(item) for item in self.interfaces],
            "ips": ips,
            "dns": dict(self.dns),
        }
        if self.routes:
            body["routes"] = [dict(item) for item in self.routes]
        return body


def version_reply(asked: str) -> Json:
    return {"cniVersion": asked or CURRENT, "supportedVersions": list(SUPPORTED)}


def parse_args(env: Mapping[str, str]) -> Args:
    """CNI_* variables; CNIError(INVALID_ENVIRONMENT) names the one that is missing or malformed."""
    command = env.get("CNI_COMMAND", "")
    if command not in SINCE:
        raise _environment("CNI_COMMAND", command, "one of " + ", ".join(SINCE))
    container, ifname, netns = (env.get(name, "") for name in ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"))
    if command in ("ADD", "DEL", "CHECK"):
        if not _CONTAINER_ID.fullmatch(container) or len(container) > _LONGEST_ID:
            raise _environment(
                "CNI_CONTAINERID", container, "a letter or digit, then letters, digits, '_', '.', '-', 200 at most"
            )
        if not _valid_ifname(ifname):
            raise _environment("CNI_IFNAME", ifname, "an interface name: 1 to 15 characters, no '/', ':' or blanks")
        if not netns and command != "DEL":
            raise _environment("CNI_NETNS", netns, "the path of a network namespace")
    return Args(command, container, ifname, netns, _parse_cni_args(env.get("CNI_ARGS", "")))


def parse_conf(text: bytes, command: str) -> NetConf:
    """Standard input of a call.

    CNIError: DECODING_FAILURE for what is no JSON object, INCOMPATIBLE_VERSION for a version that is
    unknown or too old for the command, INVALID_CONFIG for a field that is wrong (named in the message).
    """
    raw = decode(text)
    version = raw.get("cniVersion", "0.1.0")
    if version not in SUPPORTED:
        raise CNIError(
            INCOMPATIBLE_VERSION,
            f"cniVersion {_shown(version)} is not supported",
            details=f"Supported: {', '.join(SUPPORTED)}.",
        )
    if _number(version) < _number(SINCE[command]):
        raise CNIError(
            INCOMPATIBLE_VERSION, f"{command} needs cniVersion {SINCE[command]}, the configuration says {version}"
        )
    name = raw.get("name")
    if not isinstance(name, str) or not _NETWORK_NAME.fullmatch(name) or len(name) > _LONGEST_ID:
        raise _config("name", name, "a network name: a letter or digit, then letters, digits, '_', '.', '-'")
    ipam = _mapping(raw, "ipam")
    if ipam.get("type", TYPE) not in (TYPE, "host-local"):
        raise CNIError(
            UNSUPPORTED_FIELD,
            f"ipam.type {_shown(ipam.get('type'))} is not supported",
            details="This plugin manages addresses itself: give ipam.ranges and leave ipam.type out.",
        )
    return NetConf(
        cni_version=version,
        name=name,
        bridge=_ifname(raw, "bridge", "nw0"),
        mtu=_integer(raw, "mtu", 0, 0, 65535),
        hairpin=_boolean(raw, "hairpinMode", True),
        masquerade=_boolean(raw, "ipMasq", True),
        non_masquerade=tuple(_networks(raw, "nonMasqueradeCIDRs")),
        firewall=_choice(raw, "firewall", ("iptables", "nftables"), "iptables"),
        data_dir=_path(raw, "dataDir", "/var/lib/cni/nodewright"),
        ranges=_ranges(ipam),
        routes=_routes(ipam),
        port_mappings=_port_mappings(_mapping(raw, "runtimeConfig")),
        ingress=_limit(_mapping(raw, "runtimeConfig"), "ingress"),
        egress=_limit(_mapping(raw, "runtimeConfig"), "egress"),
        prev_result=_prev_result(raw),
        valid_attachments=_valid_attachments(raw) if command == "GC" else None,
    )


def decode(text: bytes) -> Json:
    """A JSON object, or CNIError(DECODING_FAILURE) that says where it stops being one."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CNIError(
            DECODING_FAILURE,
            f"the configuration on standard input is no JSON: {error}",
            details="Correct the .conflist.",
        ) from error
    if not isinstance(raw, dict):
        raise CNIError(DECODING_FAILURE, f"the configuration is a JSON {type(raw).__name__}, not an object")
    return raw


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _environment(name: str, value: str, wanted: str) -> CNIError:
    return CNIError(INVALID_ENVIRONMENT, f"{name} is {_shown(value)}, it must be {wanted}")


def _config(name: str, value: object, wanted: str) -> CNIError:
    return CNIError(INVALID_CONFIG, f"{name} is {_shown(value)}, it must be {wanted}", details="Correct the .conflist.")


def _valid_ifname(name: object) -> bool:
    # The kernel's dev_valid_name(), and what the specification adds: printable, not "." or "..".
    return (
        isinstance(name, str)
        and 0 < len(name.encode()) <= _LONGEST_IFNAME
        and name not in (".", "..")
        and not any(c in "/:" or c.isspace() or not c.isprintable() for c in name)
    )


def _parse_cni_args(text: str) -> dict[str, str]:
    extra: dict[str, str] = {}
    for pair in filter(None, text.split(";")):
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise _environment("CNI_ARGS", text, "KEY=VALUE pairs separated by ';'")
        extra[key] = value
    return extra


def _mapping(raw: Json, name: str) -> Json:
    value = raw.get(name) or {}
    if not isinstance(value, dict):
        raise _config(name, value, "an object")
    return value


def _boolean(raw: Json, name: str, default: bool) -> bool:
    value = raw.get(name, default)
    if not isinstance(value, bool):
        raise _config(name, value, "true or false")
    return value


def _integer(raw: Json, name: str, default: int, low: int, high: int) -> int:
    value = raw.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise _config(name, value, f"a number from {low} to {high}")
    return value


def _choice(raw: Json, name: str, choices: tuple[str, ...], default: str) -> str:
    value = raw.get(name, default)
    if value not in choices:
        raise _config(name, value, "one of " + ", ".join(choices))
    return str(value)


def _ifname(raw: Json, name: str, default: str) -> str:
    value = raw.get(name, default)
    if not _valid_ifname(value):
        raise _config(name, value, "an interface name")
    return str(value)


def _path(raw: Json, name: str, default: str) -> str:
    value = raw.get(name, default)
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise _config(name, value, "an absolute path")
    return value


def _list(raw: Json, name: str) -> list[Any]:
    value = raw.get(name) or []
    if not isinstance(value, list):
        raise _config(name, value, "a list")
    return value


def _network(value: object, name: str) -> Network:
    try:
        return ip_network(str(value))
    except ValueError as error:
        raise _config(name, value, f"a network in CIDR form ({error})") from error


def _address(value: object, name: str) -> Address:
    try:
        return ip_address(str(value))
    except ValueError as error:
        raise _config(name, value, "an IP address") from error


def _networks(raw: Json, name: str) -> list[Network]:
    return [_network(item, name) for item in _list(raw, name)]


def _ranges(ipam: Json) -> tuple[RangeSet, ...]:
    """The host-local form: a list of range sets, each a list of ranges; also its short form `subnet`."""
    sets = _list(ipam, "ranges") or ([[ipam]] if "subnet" in ipam else [])
    parsed: list[RangeSet] = []
    for items in sets:
        if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
            raise _config("ipam.ranges", items, "a list of lists of objects with a subnet")
        chosen = tuple(address_range(item) for item in items)
        if len({item.subnet.version for item in chosen}) > 1:
            raise _config("ipam.ranges", items, "of one address family in each set")
        parsed.append(chosen)
    flat = [item for chosen in parsed for item in chosen]
    for position, one in enumerate(flat):
        for other in flat[position + 1 :]:
            if one.first in other or other.first in one:
                raise _config("ipam.ranges", str(other.subnet), f"apart from {one.subnet}: they overlap")
    return tuple(parsed)


def address_range(item: Json) -> AddressRange:
    """One range; the gateway is the first address unless given, and the edges of the subnet are never handed out."""
    subnet = _network(item.get("subnet"), "subnet")
    if subnet.num_addresses < 4:
        raise _config("subnet", str(subnet), "large enough for a gateway and a pod: /30 (IPv6 /126) or larger")
    low = subnet.network_address + 1
    # IPv4 keeps the broadcast address; host-local leaves the last one out of IPv6 too.
    high = subnet.network_address + (subnet.num_addresses - 2)
    first = _address(item["rangeStart"], "rangeStart") if item.get("rangeStart") else low
    last = _address(item["rangeEnd"], "rangeEnd") if item.get("rangeEnd") else high
    gateway = _address(item["gateway"], "gateway") if item.get("gateway") else low
    for name, address in (("rangeStart", first), ("rangeEnd", last), ("gateway", gateway)):
        if address not in subnet:
            raise _config(name, str(address), f"inside {subnet}")
    if int(first) > int(last):
        raise _config("rangeStart", str(first), f"not after rangeEnd {last}")
    return AddressRange(subnet, first, last, gateway)


def _routes(ipam: Json) -> tuple[Route, ...]:
    routes = []
    for item in _list(ipam, "routes"):
        if not isinstance(item, dict):
            raise _config("ipam.routes", item, "an object with dst")
        gateway = _address(item["gw"], "ipam.routes.gw") if item.get("gw") else None
        routes.append(Route(_network(item.get("dst"), "ipam.routes.dst"), gateway))
    return tuple(routes)


_PORT_KEYS = {key.lower(): key for key in ("hostPort", "containerPort", "protocol", "hostIP")}


def _port_mappings(runtime: Json) -> tuple[PortMapping, ...]:
    """https://www.cni.dev/docs/conventions/: portMappings. Entries without a hostPort ask for nothing."""
    mappings = []
    for item in _list(runtime, "portMappings"):
        if not isinstance(item, dict):
            raise _config("runtimeConfig.portMappings", item, "an object")
        # containerd writes HostPort, ContainerPort, …: Go's JSON does not mind the case of a key.
        item = {_PORT_KEYS.get(str(key).lower(), key): value for key, value in item.items()}
        if not _integer(item, "hostPort", 0, 0, 65535):
            continue
        host_ip = str(item.get("hostIP") or "")
        if host_ip and _address(host_ip, "hostIP").is_unspecified:
            host_ip = ""
        protocol = str(item.get("protocol") or "tcp").lower()
        if protocol not in ("tcp", "udp", "sctp"):
            raise _config("runtimeConfig.portMappings.protocol", protocol, "tcp, udp or sctp")
        port = _integer(item, "containerPort", 0, 1, 65535)
        mappings.append(PortMapping(item["hostPort"], port, protocol, host_ip))
    return tuple(mappings)


def _limit(runtime: Json, direction: str) -> tuple[int, int]:
    """https://www.cni.dev/docs/conventions/: bandwidth. Rate and burst of one direction, in bits."""
    # Go's JSON does not mind the case of a key, and containerd writes IngressRate.
    given = {str(key).lower(): value for key, value in _mapping(runtime, "bandwidth").items()}
    rate, burst = (_integer(given, f"{direction}{part}", 0, 0, (1 << 63) - 1) for part in ("rate", "burst"))
    if burst and not rate:
        raise _config(f"runtimeConfig.bandwidth.{direction}Burst", burst, "given with a rate, or not at all")
    return rate, burst


def _prev_result(raw: Json) -> Json | None:
    value = raw.get("prevResult")
    if value is not None and not isinstance(value, dict):
        raise _config("prevResult", value, "an object")
    return value


def _valid_attachments(raw: Json) -> frozenset[AttachmentKey]:
    if "cni.dev/valid-attachments" not in raw:
        # Absent is not "none": taking it so would cut every pod off the network.
        raise _config("cni.dev/valid-attachments", None, "present for GC")
    keys = set()
    for item in _list(raw, "cni.dev/valid-attachments"):
        if not isinstance(item, dict) or not item.get("containerID") or not item.get("ifname"):
            raise _config("cni.dev/valid-attachments", item, "an object with containerID and ifname")
        keys.add(AttachmentKey(str(item["containerID"]), str(item["ifname"])))
    return frozenset(keys)


def interface_of(item: Json) -> Interface:
    """The address of one entry of a result's `ips`."""
    try:
        return ip_interface(str(item.get("address")))
    except ValueError as error:
        raise _config("prevResult.ips.address", item.get("address"), "an address in CIDR form") from error
