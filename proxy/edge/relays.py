"""Sockets that relay TCP connections and UDP conversations to an endpoint that the caller chooses.

Upstream: proxysocket.go of Kubernetes 1.25's pkg/proxy/userspace.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from nodelib.errors import Temporary
from nodelib.firewall.objects import Family
from proxy.edge.relay_share import Choose, Open
from proxy.edge.tcp_relay import TcpRelay
from proxy.edge.udp_relay import UdpRelay


class Relays:
    """Makes the relays of both families."""

    def __init__(self) -> None:
        self._open: WeakValueDictionary[str, Open] = WeakValueDictionary()  # by namespace; its relays hold it

    async def listen(self, namespace: str, protocol: str, family: Family, choose: Choose) -> TcpRelay | UdpRelay:
        """Listen for a Service of that namespace, on a free port of every local address. Raises Temporary."""
        of_namespace = self._open.setdefault(namespace, Open())
        kind: type[TcpRelay | UdpRelay] = UdpRelay if protocol == "UDP" else TcpRelay
        try:
            return await kind.start(family, choose, of_namespace)
        except OSError as error:
            raise Temporary(
                str(error),
                obj=f"{protocol} socket",
                step="listen",
                action="The userspace mode needs a socket for each Service port: raise the limit of open files, or "
                "choose another mode.",
            ) from error
