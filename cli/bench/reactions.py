"""How fast a kubelet reacts: to a container's death, a changed ConfigMap, its own restart; and what probes cost it.

The same code measures ours and the peer: it finds and kills processes by the pod's cgroup, reads files in the node's
file tree, and asks the kubelet at :10250 as the API server does.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cli.bench.kubelet_api import KubeletApi
from nodelib.clock import Clock
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient

_BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2"
_READ_INTERVAL = 0.002  # seconds between two reads of a file
_ASK_INTERVAL = 0.05  # seconds between two requests to a kubelet, which cost it CPU time
_CHANGE_LIMIT = 150.0  # seconds; upstream takes up to its sync period and a cache's lifetime


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Where a node's pods are on this machine, and how to reach its kubelet."""

    name: str
    address: str
    cgroup: str  # of all its pods
    kubelet_dir: str
    runtime_dir: str  # containerd's root
    client_cert: tuple[str, str]
    agent: Callable[[], int]  # its pid, 0 while it does not run


@dataclass(slots=True)
class Reactions:
    """Reaction times in seconds, CPU as a share of one core, memory in MiB."""

    death: list[float] = field(default_factory=list)
    change: list[float] = field(default_factory=list)
    restart: list[float] = field(default_factory=list)
    probed_again: list[float] = field(default_factory=list)
    probing: float = 0
    probing_rss: float = 0


def dying() -> Json:
    """The spec of a pod whose container will be killed."""
    return _box(["sleep", "3600"])


def mounting(config_map: str) -> Json:
    """The spec of a pod that mounts a ConfigMap."""
    made = _box(["sleep", "3600"])
    made["containers"][0]["volumeMounts"] = [{"name": "seen", "mountPath": "/seen"}]
    return {**made, "volumes": [{"name": "seen", "configMap": {"name": config_map}}]}


def probed(kind: str) -> Json:
    """The spec of a pod that is probed every second; `kind` is exec or httpGet."""
    asked: Json = {"exec": {"command": ["true"]}} if kind == "exec" else {"httpGet": {"port": 8080}}
    made = _box(["sh", "-c", "mkdir -p /www; echo ok > /www/index.html; exec httpd -f -p 8080 -h /www"])
    made["containers"][0]["livenessProbe"] = {**asked, "periodSeconds": 1, "timeoutSeconds": 5}
    return made


def _box(command: list[str]) -> Json:
    return {"containers": [{"name": "main", "image": _BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": command}]}


class Reacting:
    """Measures reactions on one node. Call close() at the end."""

    def __init__(self, client: KubeClient, clock: Clock, node: NodePlace, namespace: str) -> None:
        self._client, self._clock, self._node = client, clock, node
        self._path = f"/api/v1/namespaces/{namespace}"
        self.kubelet = KubeletApi(node.address, node.client_cert)

    async def close(self) -> None:
        await self.kubelet.close()

    def kill(self, uid: str, container: str) -> float:
        """Send SIGKILL to a container's process and return the monotonic time. Raises Temporary when it has none."""
        for pid in self._processes(uid, container):
            at = self._clock.monotonic()
            os.kill(pid, signal.SIGKILL)
            return at
        raise Temporary("there is no process in its cgroup", obj=container, step="kill")

    def recorded(self) -> int:
        """How many sandboxes the runtime has records of, including those of deleted pods."""
        return len(os.listdir(Path(self._node.runtime_dir, "io.containerd.grpc.v1.cri/sandboxes")))

    async def changed(self, uid: str, config_map: str, value: str) -> float:
        """Change a ConfigMap; the seconds until the file in the pod's volume has the new value."""
        path = Path(self._node.kubelet_dir, "pods", uid, "volumes/kubernetes.io~configmap/seen/key")
        began = self._clock.monotonic()
        await self._client.patch(f"{self._path}/configmaps/{config_map}", {"data": {"key": value}})
        async with asyncio.timeout(_CHANGE_LIMIT):
            while path.read_text() != value:
                await asyncio.sleep(_READ_INTERVAL)
        return self._clock.monotonic() - began

    async def restarted(self, names: set[str], probed: set[str]) -> tuple[float, float]:
        """Kill the kubelet; the seconds from its next start until it shows all pods in `names`, and until it has
        probed all pods in `probed` again."""
        old = self._node.agent()
        os.kill(old, signal.SIGKILL)
        async with asyncio.timeout(120):
            while self._node.agent() in (0, old):
                await asyncio.sleep(_READ_INTERVAL)
            began = self._clock.monotonic()
            while not names <= await self.kubelet.running():
                await asyncio.sleep(_ASK_INTERVAL)
            known = self._clock.monotonic() - began
            while not probed <= await self.kubelet.probed():
                await asyncio.sleep(_ASK_INTERVAL)
        return known, self._clock.monotonic() - began

    def _processes(self, uid: str, container: str) -> list[int]:
        names = (f"*{uid}*", f"*{uid.replace('-', '_')}*")
        for tree in Path("/sys/fs/cgroup").glob("*" + self._node.cgroup):
            for pod in (found for name in names for found in tree.rglob(name)):
                for group in pod.rglob(f"*{container}*"):
                    text = (group / "cgroup.procs").read_text().split()
                    if text:
                        return [int(pid) for pid in text]
        return []
