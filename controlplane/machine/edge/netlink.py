"""Makes links, addresses and routes through netlink. One socket for each namespace; what exists is left alone.

pyroute2 is imported on first use: that takes a tenth of a second, and most commands never need it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

from controlplane.machine import model as links
from nodelib.errors import NodewrightError, Permanent, Temporary
from nodelib.netlink.pyroute2_parts import part

_RT_TABLE_MAIN = 254
_RT_SCOPE_LINK = 253
_IFA_F_NODAD = 0x02


def ip_route() -> Any:
    """pyroute2's class IPRoute."""
    return part("iproute.linux").IPRoute


def netlink_error() -> Any:
    """What pyroute2 raises for an error of the kernel, with its number as `code`."""
    return part("netlink.exceptions").NetlinkError


class Netlink:
    """Sockets in the namespaces of a cluster; `resolve` maps a space to its namespace file (None: our own)."""

    def __init__(self, resolve: Callable[[str], str | None]) -> None:
        self._resolve = resolve
        self._sockets: dict[str, Any] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Netlink:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def socket(self, space: str) -> Any:
        """The IPRoute of a space. Raises Temporary when its namespace does not exist."""
        if space not in self._sockets:
            path = self._resolve(space)
            try:
                opened = ip_route()(netns=path) if path else ip_route()()
            except OSError as error:
                raise Temporary(
                    str(error), obj=path or "host", step="open a netlink socket in the namespace"
                ) from error
            self._sockets[space] = self._stack.enter_context(opened)
        return self._sockets[space]

    def index(self, space: str, name: str) -> int | None:
        """The index of a link, None if there is none of that name."""
        found = self.socket(space).link_lookup(ifname=name)
        return int(found[0]) if found else None

    def ensure(self, wanted: links.NetworkObject) -> bool:
        """Make it exist. True if a link was made. Raises NodewrightError with the object and the kernel's reason."""
        made = False
        with _translated(wanted):
            match wanted:
                case links.Bridge():
                    made = self._bridge(wanted)
                case links.Veth():
                    made = self._veth(wanted)
                case links.Up():
                    self.socket(wanted.space).link("set", index=self._must(wanted.space, wanted.name), state="up")
                case links.Address():
                    self._address(wanted)
                case links.Route():
                    self._route(wanted)
        return made

    def delete_link(self, name: str, space: str = links.HOST) -> bool:
        """Remove a link, with its addresses and routes. False if it was not there."""
        index = self.index(space, name)
        if index is None:
            return False
        with _translated(name):
            self.socket(space).link("del", index=index)
        return True

    def networks_in_use(self) -> list[str]:
        """Addresses and route destinations of the host, as text with a prefix length."""
        socket = self.socket(links.HOST)
        found = [f"{a.get_attr('IFA_ADDRESS')}/{a['prefixlen']}" for a in socket.get_addr(family=2)]
        for route in socket.get_routes(family=2):
            destination = route.get_attr("RTA_DST")
            if destination and route.get_attr("RTA_TABLE") != 255:
                found.append(f"{destination}/{route['dst_len']}")
        return found

    def _must(self, space: str, name: str) -> int:
        index = self.index(space, name)
        if index is None:
            raise Temporary("no such link", obj=f"{space or 'host'}/{name}", step="look up a link")
        return index

    def _bridge(self, wanted: links.Bridge) -> bool:
        missing = self.index(wanted.space, wanted.name) is None
        if missing:
            self.socket(wanted.space).link("add", ifname=wanted.name, kind="bridge")
        return missing

    def _veth(self, wanted: links.Veth) -> bool:
        near, far = self.index(wanted.space, wanted.name), self.index(wanted.peer_space, wanted.peer)
        missing = near is None or far is None
        if missing:
            self._remove_half(wanted, near, far)
            self._make_veth(wanted)
            far = self._must(wanted.peer_space, wanted.peer)
        if wanted.bridge:
            self.socket(wanted.peer_space).link("set", index=far, master=self._must(wanted.peer_space, wanted.bridge))
        return missing

    def _remove_half(self, wanted: links.Veth, near: int | None, far: int | None) -> None:
        if near is not None:
            self.socket(wanted.space).link("del", index=near)
        if far is not None:
            self.socket(wanted.peer_space).link("del", index=far)

    def _make_veth(self, wanted: links.Veth) -> None:
        # Made from the wire's side: then only the near end needs a namespace file, and the host's may be our own.
        path = self._resolve(wanted.space)
        handle = os.open(path or "/proc/self/ns/net", os.O_RDONLY)
        try:
            self.socket(wanted.peer_space).link(
                "add", ifname=wanted.peer, kind="veth", peer={"ifname": wanted.name, "net_ns_fd": handle}
            )
        finally:
            os.close(handle)

    def _address(self, wanted: links.Address) -> None:
        address, prefix = wanted.address.split("/")
        # We chose the address: duplicate detection would only delay the first packets.
        quick = {"flags": _IFA_F_NODAD} if ":" in address else {}
        with _present_is_fine():
            self.socket(wanted.space).addr(
                "add", index=self._must(wanted.space, wanted.name), address=address, prefixlen=int(prefix), **quick
            )

    def _route(self, wanted: links.Route) -> None:
        what: dict[str, Any] = {
            "dst": wanted.destination,
            "table": _RT_TABLE_MAIN,
            "family": _family(wanted.destination),
        }
        if wanted.via:
            what["gateway"] = wanted.via
        elif wanted.dev:
            what["oif"] = self._must(wanted.space, wanted.dev)
            if what["family"] == socket.AF_INET:
                what["scope"] = _RT_SCOPE_LINK  # otherwise no gateway could be reached through it
        else:
            what["type"] = "unreachable"
        if wanted.source:
            what["prefsrc"] = wanted.source
        if wanted.metric:
            what["priority"] = wanted.metric
        self.socket(wanted.space).route("replace", **what)


def _family(destination: str) -> int:
    return int(socket.AF_INET6 if ":" in destination else socket.AF_INET)


@contextlib.contextmanager
def _present_is_fine() -> Iterator[None]:
    try:
        yield
    except netlink_error() as error:
        if error.code != errno.EEXIST:
            raise


@contextlib.contextmanager
def _translated(wanted: object) -> Iterator[None]:
    try:
        yield
    except NodewrightError:
        raise
    except netlink_error() as error:
        action = "Run as root." if error.code == errno.EPERM else ""
        kind = Permanent if error.code in (errno.EPERM, errno.EOPNOTSUPP) else Temporary
        raise kind(str(error), obj=str(wanted), step="netlink", action=action) from error
