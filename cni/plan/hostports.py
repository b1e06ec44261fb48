"""hostPorts: which ones there are, which conflict, and which UDP flows a change of them makes wrong. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cni.model import Address, Attachment, AttachmentKey, HostPort, Listener, PortMapping
from nodelib.addresses import parse_address
from nodelib.netlink.flows import UdpFlow

MOST_OF_NAMESPACE = 4096  # on a node; upstream has no limit


def host_ports(attachments: Iterable[Attachment], version: int = 4) -> tuple[HostPort, ...]:
    """Every hostPort of the attachments, in an order independent of theirs: those with a hostIP come first."""
    every = [
        HostPort(mapping, address, item.pod)
        for item in attachments
        for address in item.addresses
        for mapping in item.port_mappings
        if address.version == version and _same_family(mapping, version)
    ]
    return tuple(sorted(every, key=_order))


def target(item: HostPort) -> str:
    """Address and port of the pod, as iptables and nft write them."""
    shown = f"[{item.address}]" if item.address.version == 6 else str(item.address)
    return f"{shown}:{item.mapping.container_port}"


def conflicts(key: AttachmentKey, wanted: Iterable[PortMapping], attachments: Iterable[Attachment]) -> list[str]:
    """One sentence for each of `wanted` that another attachment has already.

    Two mappings with the same protocol and port conflict if their host addresses are the same or one of them is for
    every address (the scheduler's rule, k8s.io/kubernetes/pkg/scheduler/framework: HostPortInfo.CheckConflict).
    """
    found = []
    # By port: a pod may have thousands, and the store is locked while they are compared.
    held: dict[tuple[str, int], dict[AttachmentKey, tuple[Attachment, set[str]]]] = {}
    for item in attachments:
        if item.key != key:
            for theirs in item.port_mappings:
                holders = held.setdefault((theirs.protocol, theirs.host_port), {})
                holders.setdefault(item.key, (item, set()))[1].add(theirs.host_ip)
    for mapping in wanted:
        for other, addresses in held.get((mapping.protocol, mapping.host_port), {}).values():
            if not mapping.host_ip or not addresses.isdisjoint((mapping.host_ip, "")):
                holder = other.pod or f"container {other.key.container_id[:12]}"
                shown = f"{mapping.host_ip or '*'}:{mapping.host_port}/{mapping.protocol}"
                found.append(f"hostPort {shown} is held by {holder}")
    return found


def too_many(pod: str, key: AttachmentKey, wanted: Collection[PortMapping], attachments: Iterable[Attachment]) -> str:
    """Why the pod (namespace/name) cannot have so many, "" if it can: three rules for each are written anew whenever
    any hostPort comes or goes, and new connections of all pods pass them.
    """
    namespace = pod.partition("/")[0]
    if not namespace:  # podman's, and so an administrator's
        return ""
    held = sum(
        len(one.port_mappings) for one in attachments if one.key != key and one.pod.partition("/")[0] == namespace
    )
    if len(wanted) + held <= MOST_OF_NAMESPACE:
        return ""
    whose = f", and {held} of other pods of namespace {namespace}" if held else ""
    return f"{len(wanted)} hostPorts{whose} are too many: the pods of a namespace have {MOST_OF_NAMESPACE} on a node"


def of_the_node(wanted: Collection[PortMapping], listeners: Iterable[Listener], clients: tuple[int, int]) -> list[str]:
    """One sentence for each of `wanted` at which a process of the node listens: the rules would lead what is sent to it
    (to sshd, the kubelet, the API server, the overlay) to the pod. Upstream's portmap lets that happen.

    `clients`: the ports of sockets that ask for none, which clients over UDP have for a moment.
    """
    ports = {(one.protocol, one.host_port) for one in wanted}
    held: dict[tuple[str, int], list[Address]] = {}
    for one in listeners:
        passing = one.protocol == "udp" and clients[0] <= one.port <= clients[1]
        if (one.protocol, one.port) in ports and not passing:
            held.setdefault((one.protocol, one.port), []).append(one.address)
    found = []
    for mapping in wanted:
        at = next((one for one in held.get((mapping.protocol, mapping.host_port), ()) if _meets(mapping, one)), None)
        if at is not None:
            shown = f"{mapping.host_ip or '*'}:{mapping.host_port}/{mapping.protocol}"
            found.append(f"hostPort {shown} is the node's own: one of its processes listens at {at}")
    return found


def _meets(mapping: PortMapping, listening: Address) -> bool:
    """Whether both have an address in common. A socket at :: is usually one for both families."""
    if not mapping.host_ip:
        return True
    if listening.is_unspecified:
        return listening.version == 6 or ":" not in mapping.host_ip
    return str(listening) == mapping.host_ip


def stale_flows(
    flows: Iterable[UdpFlow], local: Collection[Address], added: Collection[HostPort], removed: Collection[HostPort]
) -> list[UdpFlow]:
    """UDP conntrack entries that would keep packets from following the rules as they are now.

    Netfilter translates only by the first packet of a flow: a client that was there before the pod is never
    translated, and one that outlives the pod keeps sending to an address that may be another pod's by then.
    """
    # By port: a pod may have thousands, and whoever can send to the node makes any number of flows.
    came, went, own = _by_port(added), _by_port(removed), frozenset(map(str, local))
    found = []
    for flow in flows:
        port, answers = flow.destination_port, (flow.reply_source, flow.reply_port)
        before = any(_uses(flow, item) for item in went.get(port, ()))
        wrong = any(_is_for(flow, item, own) and answers != _target(item) for item in came.get(port, ()))
        if before or wrong:
            found.append(flow)
    return found


def _by_port(items: Iterable[HostPort]) -> dict[int, list[HostPort]]:
    found: dict[int, list[HostPort]] = {}
    for item in items:
        found.setdefault(item.mapping.host_port, []).append(item)
    return found


def udp_changes(
    old: Collection[HostPort], new: Collection[HostPort]
) -> tuple[tuple[HostPort, ...], tuple[HostPort, ...]]:
    """(added, removed) UDP host ports."""
    before, after = ({item for item in side if item.mapping.protocol == "udp"} for side in (old, new))
    return tuple(after - before), tuple(before - after)


def _is_for(flow: UdpFlow, item: HostPort, local: Collection[str]) -> bool:
    mapping = item.mapping
    return flow.destination == mapping.host_ip if mapping.host_ip else flow.destination in local


def _uses(flow: UdpFlow, item: HostPort) -> bool:
    translated = flow.destination != flow.reply_source
    return translated and (flow.reply_source, flow.reply_port) == _target(item)


def _target(item: HostPort) -> tuple[str, int]:
    return str(item.address), item.mapping.container_port


def _same_family(mapping: PortMapping, version: int) -> bool:
    if not mapping.host_ip:
        return True
    try:
        return parse_address(mapping.host_ip).version == version
    except ValueError:  # the record of an older version: its text would become part of a rule
        return False


def _order(item: HostPort) -> tuple[bool, str, str, int, int]:
    mapping = item.mapping
    return (not mapping.host_ip, mapping.host_ip, mapping.protocol, mapping.host_port, int(item.address))
