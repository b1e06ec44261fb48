"""Names of what the pod network makes. Derived, so that any process finds them again without a record."""

from __future__ import annotations

import hashlib

from cni.model import Address, AttachmentKey

NODE_NETWORK = "nodewright"
_HASHED = 11  # "veth" + 11 characters fill IFNAMSIZ - 1; 44 bits: no two of a node's pods meet


def host_ifname(network: str, key: AttachmentKey) -> str:
    """The node's end of a pod's veth pair."""
    return "veth" + _hash(network, key)


def ifb_ifname(network: str, key: AttachmentKey) -> str:
    """The link at which what the pod sends waits for its bandwidth limit."""
    return "nwbw" + _hash(network, key)


def _hash(network: str, key: AttachmentKey) -> str:
    return hashlib.sha256(f"{network}/{key.container_id}/{key.ifname}".encode()).hexdigest()[:_HASHED]


def mac(address: Address) -> str:
    """A fixed, locally administered hardware address for the owner of `address` (as kubenet and OVN have it).

    Derived, so that a neighbour entry stays right when another pod gets the address later; and a bridge without
    one of its own takes the lowest of its ports', which changes as pods come and go.
    """
    tail = address.packed if address.version == 4 else hashlib.sha256(address.packed).digest()[:4]
    return ":".join(f"{octet:02x}" for octet in (0x0A, 0x58, *tail))


def network_suffix(network: str) -> str:
    """What tells the chains and tables of this network from another's; the node's own has plain names."""
    return "" if network == NODE_NETWORK else "-" + hashlib.sha256(network.encode()).hexdigest()[:6].upper()
