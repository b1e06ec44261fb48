"""A node with pods and an outside, and the proxy in it, fed by a real API server.

Addresses: the node 10.89.250.1 (where the API server is, too) and 203.0.113.1, pods 10.244.0.0/24, a client
outside 203.0.113.9, Services 10.96.0.0/16.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nodelib.json_values import Json
from tests.builders.services import endpoint, endpoint_slice, node, service
from tests.netns import api_server
from tests.netns.cni_world import LIMIT, ROOT, Namespace, wait_for

_CURL_REFUSED = 7  # exit status: nobody listens there

PEER = str(Path(__file__).with_name("proxy_peer.py"))
NODE = "pnode"
CLIENT, OUTSIDE = "203.0.113.9", "203.0.113.1"


class Entered(Namespace):
    """A namespace that somebody else holds, under /run/netns."""

    def __init__(self, name: str) -> None:
        self.path = f"/run/netns/{name}"
        self._processes = []

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


class ProxyWorld:
    """`close()` ends everything that was started here."""

    def __init__(self, folder: Path, api: api_server.ApiServer, mode: str = "iptables") -> None:
        self.mode = mode
        self.folder = folder
        self.api = api
        self.node = Entered(api.netns)
        self._spaces: list[Namespace] = [self.node]
        self._services: list[str] = []
        self.node.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        self.node.run("ip", "link", "add", "pods0", "type", "bridge")
        self.node.run("ip", "addr", "add", "10.244.0.1/24", "dev", "pods0")
        self.node.run("ip", "link", "set", "pods0", "up")
        self.client = self._attached("out0", OUTSIDE + "/24", CLIENT + "/24", OUTSIDE)
        # A packet of the node's own is routed before it is translated: without a route there is nothing to translate.
        self.node.run("ip", "route", "add", "default", "via", CLIENT)
        self.proxy: subprocess.Popen[bytes] | None = None
        self._write_kubeconfig()
        wanted = node(NODE, cidr="", address=OUTSIDE)
        made = self.call("POST", "/api/v1/nodes", wanted)
        if made.get("kind") == "Node":
            self.call("PUT", f"/api/v1/nodes/{NODE}/status", {**made, "status": wanted["status"]})

    def close(self) -> None:
        if self.proxy is not None and self.proxy.poll() is None:
            self.proxy.kill()
            self.proxy.wait()
        for name in self._services:
            self.call("DELETE", f"/api/v1/namespaces/default/services/{name}")
            self.call("DELETE", f"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/{name}-1")
        for space in reversed(self._spaces):
            space.close()
        for link in ("pods0", "out0"):
            self.node.run("ip", "link", "del", link, check=False)

    def pod(self, number: int, *servers: tuple[str, int]) -> Namespace:
        """A pod 10.244.0.<number> named "pod<number>" that serves (kind, port)."""
        space = Namespace()
        self._spaces.append(space)
        host = f"p{number}"
        self.node.run("ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", str(space.pid))
        self.node.run("ip", "link", "set", host, "master", "pods0", "up")
        # A pod that reaches itself through its Service comes back through the port it left by.
        self.node.run("bridge", "link", "set", "dev", host, "hairpin", "on")
        space.run("ip", "link", "set", "lo", "up")
        space.run("ip", "addr", "add", f"10.244.0.{number}/24", "dev", "eth0")
        space.run("ip", "link", "set", "eth0", "up")
        space.run("ip", "route", "add", "default", "via", "10.244.0.1")
        for kind, port in servers:
            process = space.start(
                sys.executable, "-IS", PEER, "serve", kind, str(port), f"pod{number}", stdout=subprocess.PIPE
            )
            assert process.stdout is not None and process.stdout.readline() == b"READY\n"
        return space

    def ask(self, who: Namespace, kind: str, host: str, port: int, count: int = 1, source_port: int = 0) -> list[str]:
        done = who.run(sys.executable, "-IS", PEER, "ask", kind, host, str(port), str(count), str(source_port))
        return done.stdout.split("\n")[:-1]

    def talk(self, who: Namespace, verb: str, host: str, port: int) -> subprocess.Popen[bytes]:
        process = who.start(
            sys.executable, "-IS", PEER, verb, host, str(port), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout is not None and process.stdout.readline() == b"READY\n"
        return process

    @staticmethod
    def result(talk: subprocess.Popen[bytes]) -> str:
        return talk.communicate(b"stop\n", timeout=LIMIT)[0].decode().strip()

    def start_proxy(self, *flags: str, wrapper: Sequence[str] = ()) -> None:
        argv = [
            *wrapper,
            sys.executable,
            "-m",
            "proxy",
            f"--kubeconfig={self.folder / 'kubeconfig'}",
            f"--hostname-override={NODE}",
        ]
        argv += [
            f"--proxy-mode={self.mode}",
            "--cluster-cidr=10.244.0.0/16",
            "--conntrack-max-per-core=0",
            "--iptables-sync-period=3s",
            "-v=4",
            *flags,
        ]
        with (self.folder / "proxy.log").open("ab") as log:
            self.proxy = subprocess.Popen(self.node.argv(*argv), cwd=ROOT, stderr=log)

    def kill_proxy(self) -> None:
        assert self.proxy is not None
        self.proxy.kill()
        self.proxy.wait()

    @property
    def log(self) -> str:
        return (self.folder / "proxy.log").read_text()

    def rules(self, table: str = "nat") -> str:
        """Of one table of iptables, or all of the nftables one."""
        if self.mode == "nftables":
            return self.node.run("nft", "list", "table", "ip", "nodewright-proxy", check=False).stdout
        return self.node.run("iptables-save", "-t", table).stdout

    def shows(self, needle: str) -> bool:
        """Is "ADDRESS:PORT", or an address, in the rules?"""
        return (needle.replace(":", " . ") if self.mode == "nftables" else needle) in self.rules()

    def refuses(self, service: str, ip: str) -> bool:
        """Is port 80 of that cluster IP refused for want of endpoints?"""
        if self.mode == "nftables":
            return f"{ip} . tcp . 80 : goto reject-chain" in self.rules()
        return f"{service} has no endpoints" in self.rules("filter")

    def meaning(self) -> list[str]:
        """The rules without what changes by itself: order of elements, remembered clients, chains nobody needs now."""
        if self.mode == "nftables":
            shown = self.node.run("nft", "-j", "list", "table", "ip", "nodewright-proxy", check=False).stdout
            return _meaning(json.loads(shown or "{}").get("nftables", []))
        saved = self.node.run("iptables-save").stdout
        return sorted(line for line in saved.splitlines() if line.startswith("-A") or line.startswith(":KUBE"))

    def modes(self) -> list[str]:
        """Those that have rules in the kernel."""
        saved = self.node.run("sh", "-c", "iptables-save; ip6tables-save; nft list tables").stdout
        marks = {"iptables": ":KUBE-SERVICES", "nftables": "nodewright-proxy", "userspace": ":KUBE-PORTALS"}
        return [mode for mode, mark in marks.items() if mark in saved]

    def fetch(self, url: str) -> str:
        return self.node.run("curl", "-s", "-m", "20", url, check=False).stdout

    def is_refused(self, url: str) -> bool:
        return self.node.run("curl", "-s", "-m", "20", url, check=False).returncode == _CURL_REFUSED

    def synced(self, *needles: str) -> None:
        wait_for(f"rules with {needles}\n{self.log[-2000:]}", lambda: all(self.shows(one) for one in needles))

    def service(self, name: str, port: int = 80, target: int = 8080, **spec: Any) -> Json:
        entry = {"name": "main", "port": port, "targetPort": target, "protocol": spec.pop("protocol", "TCP")}
        body = service(name, namespace="default", ports=[entry], **spec)
        self._services.append(name)
        return self.call("POST", "/api/v1/namespaces/default/services", body)

    def endpoints(self, name: str, addresses: Sequence[str], target: int = 8080, protocol: str = "TCP") -> None:
        path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        ports = [{"name": "main", "port": target, "protocol": protocol}]
        body = endpoint_slice(name, [endpoint(one, NODE) for one in addresses], namespace="default", ports=ports)
        if self.call("GET", f"{path}/{name}-1").get("kind") == "EndpointSlice":
            self.call("PUT", f"{path}/{name}-1", body)
        else:
            self.call("POST", path, body)

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        argv = ["curl", "-ks", "-X", method, "-H", f"Authorization: Bearer {self.api.tokens['admin']}"]
        if body is not None:
            argv += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
        answer: Json = json.loads(self.node.run(*argv, self.api.server + path).stdout or "{}")
        return answer

    def _attached(self, link: str, near: str, far: str, gateway: str) -> Namespace:
        space = Namespace()
        self._spaces.append(space)
        self.node.run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(space.pid))
        self.node.run("ip", "addr", "add", near, "dev", link)
        self.node.run("ip", "link", "set", link, "up")
        space.run("ip", "addr", "add", far, "dev", "eth0")
        space.run("ip", "link", "set", "eth0", "up")
        space.run("ip", "route", "add", "default", "via", gateway)
        return space

    def _write_kubeconfig(self) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.api.server, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "u", "user": {"token": self.api.tokens["admin"]}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (self.folder / "kubeconfig").write_text(json.dumps(config))


def names(answers: list[str]) -> set[str]:
    """Who answered."""
    return {answer.split()[0] for answer in answers}


def _meaning(objects: list[Json]) -> list[str]:
    found = []
    for obj in objects:
        for kind, body in obj.items():
            chain = body.get("chain", body.get("name", ""))
            if kind in ("table", "chain", "rule", "set", "map") and not re.search(r"-\d+$", chain):
                body = {key: value for key, value in body.items() if key != "handle"}
                body["elem"] = sorted(json.dumps(one) for one in body.get("elem", ()) if chain != "affinity")
                found.append(json.dumps([kind, body]))
    return sorted(found)


__all__ = ["CLIENT", "NODE", "OUTSIDE", "ProxyWorld", "names"]
