"""Names of what the pod network makes. They are derived, so any process can find it without a record. Pure."""

from __future__ import annotations

import hashlib

from cni.model import AttachmentKey

NODE_NETWORK = "nodewright"
_HASHED = 11  # "veth" + 11 characters fill IFNAMSIZ - 1; with 44 bits, no two pods of a node collide


def host_ifname(network: str, key: AttachmentKey) -> str:
    """The node's end of a pod's veth pair."""
    return "veth" + _hash(network, key)


def ifb_ifname(network: str, key: AttachmentKey) -> str:
    """The link in which the pod's outgoing packets queue for its bandwidth limit."""
    return "nwbw" + _hash(network, key)


def _hash(network: str, key: AttachmentKey) -> str:
    return hashlib.sha256(f"{network}/{key.container_id}/{key.ifname}".encode()).hexdigest()[:_HASHED]


def network_suffix(network: str) -> str:
    """The suffix of this network's chains and tables, "" for the node's own network."""
    return "" if network == NODE_NETWORK else "-" + hashlib.sha256(network.encode()).hexdigest()[:6].upper()
