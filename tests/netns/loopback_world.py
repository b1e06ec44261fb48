"""A node with a service on its loopback, and a neighbour on its network that sends to 127.0.0.1 through it."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.netns.cni_world import Namespace, wait_for

NODE, NEIGHBOUR, PORT = "192.0.2.1", "192.0.2.9", 4790
_LISTEN = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("0.0.0.0", int(sys.argv[1])))
print("READY", flush=True)
while True:
    print(sock.recv(100).decode(), flush=True)
"""
_SEND = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.sendto(sys.argv[3].encode(), (sys.argv[1], int(sys.argv[2])))
"""


class LoopbackWorld:
    """`close()` ends everything that was started here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node, self.neighbour = Namespace(), Namespace()
        self.node.run("ip", "link", "set", "lo", "up")
        far = ("peer", "name", "eth0", "netns", str(self.neighbour.pid))
        self.node.run("ip", "link", "add", "eth0", "type", "veth", *far)
        for space, address in ((self.node, NODE), (self.neighbour, NEIGHBOUR)):
            space.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")
            space.run("ip", "link", "set", "eth0", "up")
        # Its loopback stays down, so that it sends 127.0.0.1 over the link.
        self.neighbour.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet")
        self.neighbour.run("ip", "route", "add", "127.0.0.0/8", "via", NODE)
        with (folder / "arrived").open("wb") as arrived:
            self.node.start(sys.executable, "-IS", "-c", _LISTEN, str(PORT), stdout=arrived)
        wait_for("the service listens", lambda: "READY" in self.arrived)
        self._sent = 0

    def close(self) -> None:
        self.node.close()
        self.neighbour.close()

    @property
    def arrived(self) -> list[str]:
        return (self.folder / "arrived").read_text().split()

    @property
    def route_localnet(self) -> str:
        return self.node.run("cat", "/proc/sys/net/ipv4/conf/all/route_localnet").stdout.strip()

    def loopback_is_reached(self) -> bool:
        """Whether a packet of the neighbour reaches the service by 127.0.0.1. One by the node's address always does."""
        self._sent += 1
        inside, control = f"loopback-{self._sent}", f"control-{self._sent}"
        for host, text in (("127.0.0.1", inside), (NODE, control)):
            self.neighbour.run(sys.executable, "-IS", "-c", _SEND, host, str(PORT), text)
        wait_for("the packet to the node's address", lambda: control in self.arrived)
        return inside in self.arrived  # it was sent first, over the same link
