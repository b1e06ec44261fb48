"""Makes links, addresses and routes by netlink. One socket a namespace; what is there already is left.

pyroute2 is imported on first use: it costs a quarter of a second, and most commands never need it.
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

_RT_TABLE_MAIN = 254
_RT_SCOPE_LINK = 253
_IFA_F_NODAD = 0x02


class Netlink:
    """Sockets into the namespaces of a cluster; `resolve` gives a space's namespace file (None: this one)."""

    def __init__(self, resolve: Callable[[str], str | None]) -> None:
        self._resolve = resolve
        self._sockets: dict[str, Any] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Netlink:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def socket(self, space: str) -> Any:
        """The IPRoute of a space. Raises Temporary when its namespace is not there."""
        if space not in self._sockets:
            from pyroute2 import IPRoute

            path = self._resolve(space)
            try:
                opened = IPRoute(netns=path) if path else IPRoute()
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

    def ensure(self, wish: links.Wish) -> bool:
        """Make it so; True if a link had to be made. Raises NodewrightError with the object and the kernel's reason."""
        made = False
        with _translated(wish):
            match wish:
                case links.Bridge():
                    made = self._bridge(wish)
                case links.Veth():
                    made = self._veth(wish)
                case links.Up():
                    self.socket(wish.space).link("set", index=self._must(wish.space, wish.name), state="up")
                case links.Address():
                    self._address(wish)
                case links.Route():
                    self._route(wish)
        return made

    def delete_link(self, name: str) -> bool:
        """Remove a link of this namespace. False if it was not there."""
        index = self.index(links.HOST, name)
        if index is None:
            return False
        with _translated(name):
            self.socket(links.HOST).link("del", index=index)
        return True

    def networks_in_use(self) -> list[str]:
        """Addresses and route destinations of the host, as text with prefix length."""
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

    def _bridge(self, wish: links.Bridge) -> bool:
        missing = self.index(wish.space, wish.name) is None
        if missing:
            self.socket(wish.space).link("add", ifname=wish.name, kind="bridge")
        return missing

    def _veth(self, wish: links.Veth) -> bool:
        near, far = self.index(wish.space, wish.name), self.index(wish.peer_space, wish.peer)
        missing = near is None or far is None
        if missing:
            self._remove_half(wish, near, far)
            self._make_veth(wish)
            far = self._must(wish.peer_space, wish.peer)
        if wish.bridge:
            self.socket(wish.peer_space).link("set", index=far, master=self._must(wish.peer_space, wish.bridge))
        return missing

    def _remove_half(self, wish: links.Veth, near: int | None, far: int | None) -> None:
        if near is not None:
            self.socket(wish.space).link("del", index=near)
        if far is not None:
            self.socket(wish.peer_space).link("del", index=far)

    def _make_veth(self, wish: links.Veth) -> None:
        # Made from the wire's side: only the near end then needs a namespace, and the host's is PID 1's or ours.
        path = self._resolve(wish.space)
        handle = os.open(path or "/proc/self/ns/net", os.O_RDONLY)
        try:
            self.socket(wish.peer_space).link(
                "add", ifname=wish.peer, kind="veth", peer={"ifname": wish.name, "net_ns_fd": handle}
            )
        finally:
            os.close(handle)

    def _address(self, wish: links.Address) -> None:
        address, prefix = wish.address.split("/")
        # The cluster chose it: duplicate detection would only hold up the first packets.
        quick = {"flags": _IFA_F_NODAD} if ":" in address else {}
        with _present_is_fine():
            self.socket(wish.space).addr(
                "add", index=self._must(wish.space, wish.name), address=address, prefixlen=int(prefix), **quick
            )

    def _route(self, wish: links.Route) -> None:
        what: dict[str, Any] = {"dst": wish.destination, "table": _RT_TABLE_MAIN, "family": _family(wish.destination)}
        if wish.via:
            what["gateway"] = wish.via
        elif wish.dev:
            what["oif"] = self._must(wish.space, wish.dev)
            if what["family"] == socket.AF_INET:
                what["scope"] = _RT_SCOPE_LINK  # else it could not be the way to a gateway
        else:
            what["type"] = "unreachable"
        if wish.source:
            what["prefsrc"] = wish.source
        if wish.metric:
            what["priority"] = wish.metric
        self.socket(wish.space).route("replace", **what)


def _family(destination: str) -> int:
    return int(socket.AF_INET6 if ":" in destination else socket.AF_INET)


@contextlib.contextmanager
def _present_is_fine() -> Iterator[None]:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        yield
    except NetlinkError as error:
        if error.code != errno.EEXIST:
            raise


@contextlib.contextmanager
def _translated(wish: object) -> Iterator[None]:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        yield
    except NodewrightError:
        raise
    except NetlinkError as error:
        action = "Run as root." if error.code == errno.EPERM else ""
        kind = Permanent if error.code in (errno.EPERM, errno.EOPNOTSUPP) else Temporary
        raise kind(str(error), obj=str(wish), step="netlink", action=action) from error
