"""Namespaces, nodes and pods that consist only of processes: they work as root and inside `unshare -Urn`.

A namespace lives as long as a process that holds it; nothing is bound under /run/netns, so nothing can be left over.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodelib.json_values import Json
from tests.waiting import until_sync

ROOT = Path(__file__).resolve().parents[2]
PEER = str(Path(__file__).with_name("cni_peer.py"))
LIMIT = 120.0  # seconds any condition may take on a busy machine


def wait_for(what: str, condition: Callable[[], Any], limit: float = LIMIT) -> Any:
    return until_sync(condition, limit, what)


class Namespace:
    """A network namespace held by a process."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"], stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"
        self.path = f"/proc/{self._holder.pid}/ns/net"
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def pid(self) -> int:
        return self._holder.pid

    def argv(self, *argv: str) -> list[str]:
        return ["nsenter", f"--net={self.path}", *argv]

    def run(self, *argv: str, check: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.argv(*argv), check=check, capture_output=True, text=True, timeout=LIMIT, **more)

    def start(self, *argv: str, **more: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self.argv(*argv), **more)
        self._processes.append(process)
        return process

    def serve(self, kind: str, port: int, name: str) -> None:
        process = self.start(sys.executable, "-IS", PEER, "serve", kind, str(port), name, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"READY\n"

    def sink(self, port: int) -> None:
        process = self.start(sys.executable, "-IS", PEER, "sink", str(port), stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"READY\n"

    def send(self, host: str, port: int, size: int) -> tuple[int, float]:
        """How many bytes arrived, and the seconds that took."""
        done = self.run(sys.executable, "-IS", PEER, "send", host, str(port), str(size))
        arrived, seconds = done.stdout.split()
        return int(arrived), float(seconds)

    def ask(self, kind: str, host: str, port: int, source: str = "") -> str:
        done = self.run(
            sys.executable, "-IS", PEER, "ask", kind, host, str(port), *([source] if source else []), check=False
        )
        return done.stdout.strip()

    def end_all(self) -> None:
        """End what was started here."""
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        self._processes.clear()

    def close(self) -> None:
        self.end_all()
        self._holder.kill()
        self._holder.wait()
        if self._holder.stdout:
            self._holder.stdout.close()


@dataclass
class Answer:
    status: int
    body: Json
    stderr: str


@dataclass
class Node:
    """A namespace with the pod network's own files under `folder`."""

    namespace: Namespace
    folder: Path
    name: str
    config: Json
    _server: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def shim(self) -> Path:
        return self.folder / "bin" / "nodewright"

    @property
    def conflist(self) -> Path:
        return self.folder / "net.d" / "10-nodewright.conflist"

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text()

    def start_server(self) -> None:
        self.write_config()
        with (self.folder / "server.log").open("ab") as log:
            self._server = self.namespace.start(
                sys.executable, "-m", "tests.netns.cni_server", str(self.folder / "config.json"), cwd=ROOT, stderr=log
            )
        wait_for("the CNI server answers STATUS", lambda: self.listening() and self.conflist.exists() and self.ready())

    def listening(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.folder / "cni.sock")) == 0

    def ready(self) -> bool:
        return self.call("STATUS").status == 0

    def write_config(self) -> None:
        draft = self.folder / "config.json.new"
        draft.write_text(json.dumps(self.config))
        draft.replace(self.folder / "config.json")
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(signal.SIGHUP)

    def stop_server(self, number: int = signal.SIGKILL) -> None:
        assert self._server is not None
        self._server.send_signal(number)
        self._server.wait(LIMIT)
        self._server = None

    def plugin_conf(self, **changes: Any) -> Json:
        """What libcni gives the plugin: the list's name and version, the plugin's own object."""
        every = json.loads(self.conflist.read_text())
        return {"cniVersion": "1.1.0", "name": every["name"], **every["plugins"][0]} | changes

    def start_call(
        self, command: str, container: str = "c1", netns: str = "", *, ifname: str = "eth0", **changes: Any
    ) -> subprocess.Popen[bytes]:
        raw = changes.pop("raw", None)
        env = {"PATH": os.environ["PATH"], "CNI_COMMAND": command, "CNI_PATH": str(self.folder / "bin")}
        if command in ("ADD", "DEL", "CHECK"):
            env |= {"CNI_CONTAINERID": container, "CNI_IFNAME": ifname, "CNI_NETNS": netns}
            env["CNI_ARGS"] = f"IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod-{container}"
        env |= changes.pop("env", {})
        process = subprocess.Popen(
            self.namespace.argv(str(self.shim)),
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(raw if raw is not None else json.dumps(self.plugin_conf(**changes)).encode())
        process.stdin.close()
        process.stdin = None
        return process

    def call(self, command: str, container: str = "c1", netns: str = "", **changes: Any) -> Answer:
        """One run of the real shim in the node's namespace."""
        return answer_of(self.start_call(command, container, netns, **changes))

    def add(self, container: str, pod: Namespace, **changes: Any) -> str:
        """ADD that must succeed; the pod's address."""
        answer = self.call("ADD", container, pod.path, **changes)
        assert answer.status == 0, answer
        return str(answer.body["ips"][0]["address"]).partition("/")[0]

    def add_all(self, container: str, pod: Namespace, **changes: Any) -> list[str]:
        """ADD that must succeed; the pod's addresses, one of each family."""
        answer = self.call("ADD", container, pod.path, **changes)
        assert answer.status == 0, answer
        return [str(item["address"]).partition("/")[0] for item in answer.body["ips"]]

    def store(self) -> dict[str, str]:
        """Container ID by address, as the disk has it."""
        folder = self.folder / "data" / "nodewright"
        return {
            item.name: json.loads(item.read_text())["containerID"]
            for item in folder.iterdir()
            if not item.name.startswith(".")
        }

    def veths(self) -> list[str]:
        shown = json.loads(self.namespace.run("ip", "-json", "link", "show", "master", "nw0").stdout or "[]")
        return [item["ifname"] for item in shown if item]


def answer_of(process: subprocess.Popen[bytes]) -> Answer:
    out, err = process.communicate(timeout=LIMIT)
    return Answer(process.returncode, json.loads(out) if out.strip() else {}, err.decode())


class World:
    """Everything a test makes; `close` takes it away again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._namespaces: list[Namespace] = []

    def namespace(self) -> Namespace:
        made = Namespace()
        self._namespaces.append(made)
        return made

    @staticmethod
    def link(one: Namespace, name: str, address: str, two: Namespace, far_name: str, far_address: str) -> None:
        """A veth pair between two namespaces; several addresses separated by blanks."""
        one.run("ip", "link", "add", name, "type", "veth", "peer", "name", far_name, "netns", str(two.pid))
        for side, link, ips in ((one, name, address), (two, far_name, far_address)):
            for ip in ips.split():
                side.run("ip", "addr", "add", ip, "dev", link, *(["nodad"] if ":" in ip else []))
            side.run("ip", "link", "set", link, "up")

    def node(self, name: str = "node1", cidr: str = "10.244.0.0/24", **settings: Any) -> Node:
        folder = self._folder / name
        folder.mkdir()
        namespace = self.namespace()
        namespace.run("ip", "link", "set", "lo", "up")
        config = {
            "settings": {
                "node_name": name,
                "cluster_cidrs": ["10.244.0.0/16"],
                "socket": str(folder / "cni.sock"),
                "data_dir": str(folder / "data"),
                "conf_file": str(folder / "net.d" / "10-nodewright.conflist"),
                "bin_dir": str(folder / "bin"),
            }
            | settings,
            "nodes": [{"name": name, "cidrs": [cidr]}],
            "live": None,
        }
        return Node(namespace, folder, name, config)

    def close(self) -> None:
        for namespace in self._namespaces:
            namespace.close()
