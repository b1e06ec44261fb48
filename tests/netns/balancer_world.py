"""A link with nodes that run the real load balancer daemon, a client, and a real API server; all in namespaces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodelib.kube.access import ClusterAccess, save_kubeconfig

PROJECT = str(Path(__file__).parents[2])
POOL = "10.89.250.200-10.89.250.203"
POOL6 = "fd00:250::200-fd00:250::20f"


def ip(*argv: str) -> str:
    return subprocess.run(["ip", *argv], check=True, capture_output=True, text=True).stdout


class Space:
    """A network namespace on the bridge `bridge` of the namespace `wire`."""

    def __init__(self, wire: str, bridge: str, name: str, number: int) -> None:
        self.netns, self.address = f"{wire}-{name}", f"10.89.250.{number}"
        self.name, self._wire, self._peer = name, wire, f"v{name}"
        ip("netns", "add", self.netns)
        ip("-n", wire, "link", "add", self._peer, "type", "veth", "peer", "name", "eth0", "netns", self.netns)
        ip("-n", wire, "link", "set", self._peer, "master", bridge, "up")
        for link in ("lo", "eth0"):
            ip("-n", self.netns, "link", "set", link, "up")
        ip("-n", self.netns, "addr", "add", f"{self.address}/24", "dev", "eth0")
        ip("-n", self.netns, "addr", "add", f"fd00:250::{number:x}/64", "dev", "eth0", "nodad")
        self.run("sysctl", "-qw", "net.ipv4.ip_forward=1")

    @property
    def mac(self) -> str:
        return str(json.loads(ip("-j", "-n", self.netns, "link", "show", "eth0"))[0]["address"])

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.netns}", *argv], check=check, capture_output=True, text=True
        )

    def start(self, *argv: str, **more: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(["nsenter", f"--net=/run/netns/{self.netns}", *argv], cwd=PROJECT, **more)

    def cut(self, *, off: bool = True) -> None:
        """Take the cable out, or put it in again."""
        ip("-n", self._wire, "link", "set", self._peer, "down" if off else "up")

    def who_has(self, address: str) -> str:
        """The MAC address of whoever answers, as this namespace's own kernel finds it; "" if nobody does.

        It asks a second time after a second, as for any neighbour.
        """
        subprocess.run(["ip", "-n", self.netns, "neigh", "flush", "to", address], check=False, capture_output=True)
        self.run("bash", "-c", f"echo > /dev/udp/{address}/9", check=False)
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            found = json.loads(ip("-j", "-n", self.netns, "neigh", "show", "to", address) or "[]")
            if found and found[0].get("lladdr"):
                return str(found[0]["lladdr"])
            time.sleep(0.01)
        return ""

    def close(self) -> None:
        subprocess.run(["ip", "netns", "del", self.netns], check=False, capture_output=True)


class Daemon:
    """`python -m loadbalancer` on a node."""

    def __init__(self, space: Space, access: ClusterAccess, folder: Path, *pools: str) -> None:
        self.space, self._folder = space, folder
        kubeconfig = folder / f"{space.name}.conf"
        save_kubeconfig(str(kubeconfig), access)
        self._argv = [
            *(sys.executable, "-m", "loadbalancer", f"--kubeconfig={kubeconfig}", f"--hostname-override={space.name}"),
            *(f"--pool={one}" for one in pools),
            *(f"--state-file={folder}/{space.name}/held.json", "--bind-address=127.0.0.1:10245", "--v=4"),
        ]
        self.process: subprocess.Popen[Any] | None = None

    @property
    def log(self) -> str:
        return (self._folder / f"{self.space.name}.log").read_text()

    def start(self) -> None:
        with open(self._folder / f"{self.space.name}.log", "ab") as log:
            self.process = self.space.start(*self._argv, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def wait_for(what: str, found: Callable[[], Any], seconds: float = 20, pause: float = 0.05) -> Any:
    """The first true answer. `found` is asked again and again."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, f"not in {seconds:g} s: {what}"
        time.sleep(pause)
    return value
