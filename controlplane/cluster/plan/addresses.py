"""Which names and subnets a cluster may have. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from controlplane.cluster.model import is_name
from nodelib.errors import Invalid, Permanent, WrongUsage

_POOL = ipaddress.IPv4Network("10.89.0.0/16")


def check_name(name: str) -> str:
    """Return `name`. Raises Invalid if it cannot be the name of a cluster."""
    if not is_name(name):
        raise WrongUsage(
            f"{name!r} cannot be the name of a cluster: it has at most 12 characters of a-z, 0-9 and '-',"
            " begins with a letter and does not end with '-'",
            step="check --name",
            action="Choose another --name.",
        )
    return name


def parse_networks(texts: Iterable[str]) -> tuple[ipaddress.IPv4Network, ...]:
    """The IPv4 networks of routes and addresses as the kernel prints them; other families are left out."""
    networks = []
    for text in texts:
        network = ipaddress.ip_interface(text).network
        if isinstance(network, ipaddress.IPv4Network) and network.prefixlen > 0:
            networks.append(network)
    return tuple(networks)


def choose_subnet(taken: Iterable[ipaddress.IPv4Network]) -> str:
    """The first /24 of 10.89.0.0/16 that overlaps nothing in `taken`. Raises Permanent when there is none."""
    occupied = tuple(taken)
    for candidate in _POOL.subnets(new_prefix=24):
        if not any(candidate.overlaps(other) for other in occupied):
            return str(candidate)
    raise Permanent(
        f"no free /24 left in {_POOL}",
        step="choose the nodes' subnet",
        action="Give one with --subnet, or remove a cluster with `./nodewright down --name NAME`.",
    )


def check_subnet(text: str, taken: Iterable[ipaddress.IPv4Network], reserved: Iterable[str]) -> str:
    """Check a subnet given by the user. Raises Invalid unless it is a /16 to /27 that overlaps nothing in use."""
    try:
        subnet = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise WrongUsage(
            str(error), obj=f"--subnet {text}", action="Give an IPv4 network, such as 10.89.7.0/24."
        ) from error
    if not 16 <= subnet.prefixlen <= 27:
        raise WrongUsage(
            f"/{subnet.prefixlen} is outside /16 to /27",
            obj=f"--subnet {text}",
            action="Give for example 10.89.7.0/24.",
        )
    for other in (*taken, *(ipaddress.IPv4Network(cidr) for cidr in reserved)):
        if subnet.overlaps(other):
            raise Invalid(
                f"overlaps {other}, which is in use on this machine",
                obj=f"--subnet {text}",
                step="check the subnet",
                action="Leave out --subnet (a free one is chosen) or give another; `ip route` shows what is taken.",
            )
    return str(subnet)
