"""The plugin's configuration, on standard input of a call (sections "Network configuration" and "Execution"). Pure.

Everything that comes from outside is checked here and in `arguments.py`, so that a hostile name or a corrupt
configuration ends in a coded error before anything on the node has been touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cni.model import Address, AddressRange, AttachmentKey, Network, PortMapping, RangeSet, Route
from cni.spec.arguments import LONGEST_NAME, NAME, valid_ifname
from cni.spec.errors import DECODING_FAILURE, INCOMPATIBLE_VERSION, UNSUPPORTED_FIELD, CNIError, config_error, shown
from cni.spec.versions import SINCE, SUPPORTED, number
from nodelib.addresses import parse_address, parse_network
from nodelib.json_values import Json
from nodelib.json_values import decode as decode_json

_LONGEST = 1 << 20  # bytes; 4,096 host ports are a third of it, 5,000 attachments of a GC half
TYPE = "nodewright"  # of this plugin in a .conflist, and the name of its executable


@dataclass(frozen=True, slots=True)
class NetConf:
    """The configuration of one call.

    Keys of our own: bridge, mtu, hairpinMode, ipMasq, nonMasqueradeCIDRs, firewall, dataDir, policySocket.
    """

    cni_version: str
    name: str
    bridge: str = "nw0"
    mtu: int = 0
    hairpin: bool = True
    masquerade: bool = True
    non_masquerade: tuple[Network, ...] = ()
    firewall: str = "iptables"
    data_dir: str = "/var/lib/cni/nodewright"
    policy_socket: str = ""
    ranges: tuple[RangeSet, ...] = ()
    routes: tuple[Route, ...] = ()
    port_mappings: tuple[PortMapping, ...] = ()
    ingress: tuple[int, int] = (0, 0)  # to the pod: bits per second, burst in bits; 0: no limit
    egress: tuple[int, int] = (0, 0)
    prev_result: Json | None = None
    valid_attachments: frozenset[AttachmentKey] | None = None


def parse_conf(text: bytes, command: str) -> NetConf:
    """Read the standard input of a call.

    Raises CNIError: DECODING_FAILURE for anything but a JSON object, INCOMPATIBLE_VERSION for a version that is unknown
    or too old for the command, INVALID_CONFIG for a wrong field, which the message names.
    """
    raw = decode(text)
    version = raw.get("cniVersion", "0.1.0")
    if version not in SUPPORTED:
        raise CNIError(
            INCOMPATIBLE_VERSION,
            f"cniVersion {shown(version)} is not supported",
            details=f"Supported: {', '.join(SUPPORTED)}.",
        )
    if number(version) < number(SINCE[command]):
        raise CNIError(
            INCOMPATIBLE_VERSION, f"{command} needs cniVersion {SINCE[command]}, the configuration says {version}"
        )
    name = raw.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise config_error("name", name, "a network name: a letter or digit, then letters, digits, '_', '.', '-'")
    ipam = _mapping(raw, "ipam")
    if ipam.get("type", TYPE) not in (TYPE, "host-local"):
        raise CNIError(
            UNSUPPORTED_FIELD,
            f"ipam.type {shown(ipam.get('type'))} is not supported",
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
        policy_socket=_path(raw, "policySocket", "/") if raw.get("policySocket") else "",
        ranges=_ranges(ipam),
        routes=_routes(ipam),
        port_mappings=_port_mappings(_mapping(raw, "runtimeConfig")),
        ingress=_limit(_mapping(raw, "runtimeConfig"), "ingress"),
        egress=_limit(_mapping(raw, "runtimeConfig"), "egress"),
        prev_result=_prev_result(raw) if command in ("ADD", "CHECK") else None,  # nothing else needs it
        valid_attachments=_valid_attachments(raw) if command == "GC" else None,
    )


def decode(text: bytes) -> Json:
    """Decode a JSON object. Raises CNIError(DECODING_FAILURE), which says where it is malformed.

    What another plugin of the list has printed is a part of it, and may be as long as that plugin likes.
    """
    if len(text) > _LONGEST:
        raise CNIError(
            DECODING_FAILURE,
            f"the configuration on standard input has {len(text)} bytes, of which at most {_LONGEST} are read",
            details="Look at the plugins before this one in the .conflist: their result is a part of it.",
        )
    try:
        raw = decode_json(text)
    except (ValueError, RecursionError) as error:
        raise CNIError(
            DECODING_FAILURE,
            f"the configuration on standard input is not JSON: {error}",
            details="Correct the .conflist.",
        ) from error
    if not isinstance(raw, dict):
        raise CNIError(DECODING_FAILURE, f"the configuration is a JSON {type(raw).__name__}, not an object")
    return raw


def _mapping(raw: Json, name: str, label: str = "") -> Json:
    value = raw.get(name) or {}
    if not isinstance(value, dict):
        raise config_error(label or name, value, "an object")
    return value


def _boolean(raw: Json, name: str, default: bool) -> bool:
    value = raw.get(name, default)
    if not isinstance(value, bool):
        raise config_error(name, value, "true or false")
    return value


def _integer(raw: Json, name: str, default: int, low: int, high: int) -> int:
    value = raw.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise config_error(name, value, f"a number from {low} to {high}")
    return value


def _choice(raw: Json, name: str, choices: tuple[str, ...], default: str) -> str:
    value = raw.get(name, default)
    if value not in choices:
        raise config_error(name, value, "one of " + ", ".join(choices))
    return str(value)


def _ifname(raw: Json, name: str, default: str) -> str:
    value = raw.get(name, default)
    if not valid_ifname(value) or not NAME.fullmatch(value):  # it becomes part of rules
        raise config_error(name, value, "an interface name of letters, digits, '_', '.', '-'")
    return str(value)


def _path(raw: Json, name: str, default: str) -> str:
    value = raw.get(name, default)
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise config_error(name, value, "an absolute path")
    return value


def _list(raw: Json, name: str) -> list[Any]:
    value = raw.get(name) or []
    if not isinstance(value, list):
        raise config_error(name, value, "a list")
    return value


def _network(value: object, name: str) -> Network:
    try:
        return parse_network(value)
    except ValueError as error:
        raise config_error(name, value, f"a network in CIDR form ({error})") from error


def _address(value: object, name: str) -> Address:
    try:
        return parse_address(value)
    except ValueError as error:
        raise config_error(name, value, "an IP address") from error


def _networks(raw: Json, name: str) -> list[Network]:
    return [_network(item, name) for item in _list(raw, name)]


def _ranges(ipam: Json) -> tuple[RangeSet, ...]:
    """host-local's form: a list of range sets, each a list of ranges; or its short form `subnet`."""
    sets = _list(ipam, "ranges") or ([[ipam]] if "subnet" in ipam else [])
    parsed: list[RangeSet] = []
    for items in sets:
        if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
            raise config_error("ipam.ranges", items, "a list of lists of objects with a subnet")
        chosen = tuple(address_range(item) for item in items)
        if len({item.subnet.version for item in chosen}) > 1:
            raise config_error("ipam.ranges", items, "of one address family in each set")
        parsed.append(chosen)
    flat = [item for chosen in parsed for item in chosen]
    for position, one in enumerate(flat):
        for other in flat[position + 1 :]:
            if one.first in other or other.first in one:
                raise config_error("ipam.ranges", str(other.subnet), f"apart from {one.subnet}: they overlap")
    return tuple(parsed)


def address_range(item: Json) -> AddressRange:
    """One range. Its gateway is by default the first address; the subnet's first and last one are never assigned."""
    subnet = _network(item.get("subnet"), "subnet")
    if subnet.num_addresses < 4:
        raise config_error("subnet", str(subnet), "large enough for a gateway and a pod: /30 (IPv6 /126) or larger")
    low = subnet.network_address + 1
    # The last one is IPv4's broadcast address; host-local leaves it out of IPv6, too.
    high = subnet.network_address + (subnet.num_addresses - 2)
    first = _address(item["rangeStart"], "rangeStart") if item.get("rangeStart") else low
    last = _address(item["rangeEnd"], "rangeEnd") if item.get("rangeEnd") else high
    gateway = _address(item["gateway"], "gateway") if item.get("gateway") else low
    for name, address in (("rangeStart", first), ("rangeEnd", last), ("gateway", gateway)):
        if address not in subnet:
            raise config_error(name, str(address), f"inside {subnet}")
    if int(first) > int(last):
        raise config_error("rangeStart", str(first), f"not after rangeEnd {last}")
    return AddressRange(subnet, first, last, gateway)


def _routes(ipam: Json) -> tuple[Route, ...]:
    routes = []
    for item in _list(ipam, "routes"):
        if not isinstance(item, dict):
            raise config_error("ipam.routes", item, "an object with dst")
        gateway = _address(item["gw"], "ipam.routes.gw") if item.get("gw") else None
        routes.append(Route(_network(item.get("dst"), "ipam.routes.dst"), gateway))
    return tuple(routes)


_PORT_KEYS = {key.lower(): key for key in ("hostPort", "containerPort", "protocol", "hostIP")}


def _port_mappings(runtime: Json) -> tuple[PortMapping, ...]:
    """https://www.cni.dev/docs/conventions/: portMappings. Entries without a hostPort are left out."""
    mappings = []
    for item in _list(runtime, "portMappings"):
        if not isinstance(item, dict):
            raise config_error("runtimeConfig.portMappings", item, "an object")
        # containerd writes HostPort, ContainerPort, …: Go's JSON ignores the case of keys.
        item = {_PORT_KEYS.get(str(key).lower(), key): value for key, value in item.items()}
        if not _integer(item, "hostPort", 0, 0, 65535):
            continue
        # The API server does not check hostIP: any text may come here, and what passes becomes part of a rule.
        address = _address(item["hostIP"], "hostIP") if item.get("hostIP") else None
        host_ip = "" if address is None or address.is_unspecified else str(address)
        protocol = str(item.get("protocol") or "tcp").lower()
        if protocol not in ("tcp", "udp", "sctp"):
            raise config_error("runtimeConfig.portMappings.protocol", protocol, "tcp, udp or sctp")
        port = _integer(item, "containerPort", 0, 1, 65535)
        mappings.append(PortMapping(item["hostPort"], port, protocol, host_ip))
    return tuple(mappings)


def _limit(runtime: Json, direction: str) -> tuple[int, int]:
    """https://www.cni.dev/docs/conventions/: bandwidth. Rate and burst of one direction, in bits."""
    # containerd writes IngressRate, …: Go's JSON ignores the case of keys.
    given = {str(key).lower(): value for key, value in _mapping(runtime, "bandwidth").items()}
    rate, burst = (_integer(given, f"{direction}{part}", 0, 0, (1 << 63) - 1) for part in ("rate", "burst"))
    if burst and not rate:
        raise config_error(f"runtimeConfig.bandwidth.{direction}Burst", burst, "given with a rate, or not at all")
    return rate, burst


def _prev_result(raw: Json) -> Json | None:
    value = raw.get("prevResult")
    if value is not None and not isinstance(value, dict):
        raise config_error("prevResult", value, "an object")
    for part in ("interfaces", "ips", "routes"):
        entries = (value or {}).get(part) or []
        if not isinstance(entries, list) or not all(isinstance(item, dict) for item in entries):
            raise config_error(f"prevResult.{part}", entries, "a list of objects")
    if value is not None:
        _mapping(value, "dns", "prevResult.dns")
    return value


def _valid_attachments(raw: Json) -> frozenset[AttachmentKey]:
    if "cni.dev/valid-attachments" not in raw:
        # A missing list is not an empty one: that would cut every pod off the network.
        raise config_error("cni.dev/valid-attachments", None, "present for GC")
    keys = set()
    for item in _list(raw, "cni.dev/valid-attachments"):
        if not isinstance(item, dict) or not item.get("containerID") or not item.get("ifname"):
            raise config_error("cni.dev/valid-attachments", item, "an object with containerID and ifname")
        keys.add(AttachmentKey(str(item["containerID"]), str(item["ifname"])))
    return frozenset(keys)
