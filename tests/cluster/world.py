"""One cluster as a test sees it: kubectl, the API server, and its nodes from inside.

Nothing here depends on what a test proves; the tests can be read without this file.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.common.model.errors import CriUnavailable
from agent.common.model.pods import ContainerState, SandboxState
from agent.runtime.edge.cri import Cri
from controlplane.cluster.model import CONTROL_PLANE, Cluster
from controlplane.machine.edge import process_one
from controlplane.machine.edge.namespaces import in_node
from controlplane.supervisor.edge import units
from controlplane.supervisor.edge.procfs import start_time
from nodelib.command import Completed, run
from nodelib.errors import NodewrightError
from nodelib.kube.client import ApiError, KubeClient
from tests.builders.pods import manifest

Object = dict[str, Any]
_GROUPS = {
    **dict.fromkeys(("deployments", "replicasets", "daemonsets", "statefulsets"), "/apis/apps/v1"),
    **dict.fromkeys(("jobs", "cronjobs"), "/apis/batch/v1"),
    **dict.fromkeys(("roles", "rolebindings"), "/apis/rbac.authorization.k8s.io/v1"),
    "endpointslices": "/apis/discovery.k8s.io/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
}
_LOAD = Path(__file__).with_name("http_load.py")


def condition(obj: Object, kind: str) -> Object:
    """One of the object's conditions, {} if it has none of that type."""
    found: list[Object] = obj.get("status", {}).get("conditions") or []
    return next((one for one in found if one["type"] == kind), {})


def is_ready(obj: Object) -> bool:
    return condition(obj, "Ready").get("status") == "True"


def status_of(obj: Object, name: str = "main", kind: str = "containerStatuses") -> Object:
    """The status of one container of a pod, {} before there is any."""
    found: list[Object] = obj.get("status", {}).get(kind) or []
    return next((one for one in found if one["name"] == name), {})


def state_of(obj: Object, name: str = "main", kind: str = "containerStatuses") -> tuple[str, Object]:
    """("waiting" | "running" | "terminated" | "", its details)."""
    state: Object = status_of(obj, name, kind).get("state") or {}
    return next(iter(state.items()), ("", {}))


def containers_of(pods: Iterable[Object]) -> dict[str, tuple[str, int]]:
    """Container id -> start time and restarts, of all running containers."""
    found = {}
    for obj in pods:
        for one in obj.get("status", {}).get("containerStatuses") or []:
            running = one["state"].get("running")
            found[one.get("containerID", one["name"])] = (running and running["startedAt"], one["restartCount"])
    return found


@dataclass(frozen=True)
class Left:
    """What the pods of a node have on it."""

    addresses: frozenset[str]
    veths: frozenset[str]
    cgroups: frozenset[str]
    mounts: frozenset[str]
    sandboxes: frozenset[str]
    containers: frozenset[str]
    directories: frozenset[str]

    def beyond(self, before: Left) -> dict[str, list[str]]:
        """What is here and was not before."""
        pairs = {name: getattr(self, name) - getattr(before, name) for name in Left.__dataclass_fields__}
        return {name: sorted(more) for name, more in pairs.items() if more}


@dataclass
class World:
    """The cluster, its API, and a namespace of the test's own."""

    cluster: Cluster
    api: KubeClient
    namespace: str
    stats: list[tuple[str, str]] = field(default_factory=list)

    # --- the API ---------------------------------------------------------------------------------------------------

    def path(self, kind: str, name: str = "", namespace: str = "") -> str:
        base = f"{_GROUPS.get(kind, '/api/v1')}/namespaces/{namespace or self.namespace}/{kind}"
        return f"{base}/{name}" if name else base

    async def create(self, obj: Object) -> Object:
        """Create an object in the test's namespace; the kinds that tests use."""
        placed = {**obj, "metadata": {**obj["metadata"], "namespace": self.namespace}}
        return await self.api.post(self.path(f"{obj['kind'].lower()}s"), placed)

    async def config_map(self, name: str, **data: str) -> Object:
        metadata = {"name": name}
        return await self.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    async def get(self, name: str, kind: str = "pods", namespace: str = "") -> Object:
        return await self.api.get(self.path(kind, name, namespace))

    async def pods(self, selector: str = "", namespace: str = "") -> list[Object]:
        params = {"labelSelector": selector} if selector else None
        listed: list[Object] = (await self.api.get(self.path("pods", namespace=namespace), params))["items"]
        return listed

    async def delete(self, name: str, kind: str = "pods", grace: int | None = None) -> None:
        body = None if grace is None else {"gracePeriodSeconds": grace}
        await self.api.delete(self.path(kind, name), body)

    async def until(
        self, name: str, wanted: Callable[[Object], object], what: str, seconds: float = 120, kind: str = "pods"
    ) -> Object:
        """The object as it is once it satisfies `wanted`. It is watched, not polled."""
        last: Object = {}
        try:
            async with asyncio.timeout(seconds):
                async for last in self.follow(name, kind):
                    if wanted(last):
                        return last
        except TimeoutError:
            pass
        status = json.dumps(last.get("status"), indent=1)
        events = "\n".join(f"{one['reason']}: {one['message']}" for one in await self.events(name))
        raise AssertionError(f"{kind}/{name} in {seconds:g} s not: {what}\n{status}\nevents:\n{events}")

    async def follow(self, name: str, kind: str = "pods") -> AsyncIterator[Object]:
        """Every version of one object from now on; {"deleted": True, ...} when it is gone."""
        while True:
            params = {"fieldSelector": f"metadata.name={name}"}
            async for event in self.api.stream(self.path(kind), params):
                yield {**event["object"], "deleted": True} if event["type"] == "DELETED" else event["object"]

    async def ready(self, name: str, seconds: float = 120) -> Object:
        return await self.until(name, is_ready, "Ready", seconds)

    async def gone(self, name: str, kind: str = "pods", seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                last = await self.get(name, kind)
            except ApiError as error:
                assert error.is_not_found, error
                return
            assert time.monotonic() < deadline, f"{kind}/{name} is there after {seconds:g} s: {json.dumps(last)}"
            await asyncio.sleep(0.1)

    async def run(self, obj: Object, seconds: float = 120) -> Object:
        """Create a pod and wait until it is Ready."""
        await self.create(obj)
        return await self.ready(obj["metadata"]["name"], seconds)

    async def another(self, meanwhile: str, node: str) -> float:
        """One more pod on the node, Ready and gone; both times go to the stats. Returns the longer one, in seconds."""
        began = time.monotonic()
        await self.run(manifest("other", nodeName=node))
        ready = time.monotonic()
        await self.delete("other")
        await self.gone("other")
        gone = time.monotonic()
        self.stats.append((f"{meanwhile}: another one Ready, gone", f"{ready - began:.2f} s, {gone - ready:.2f} s"))
        return max(ready - began, gone - ready)

    async def ended(self, obj: Object, seconds: float = 120) -> Object:
        """Create a pod and wait until all of it has ended."""
        await self.create(obj)
        name = obj["metadata"]["name"]
        return await self.until(name, lambda one: one["status"].get("phase") in ("Succeeded", "Failed"), "end", seconds)

    async def events(self, name: str, namespace: str = "") -> list[Object]:
        params = {"fieldSelector": f"involvedObject.name={name}"}
        listed: list[Object] = (await self.api.get(self.path("events", namespace=namespace), params))["items"]
        return listed

    async def event(self, name: str, reason: str, text: str = "", seconds: float = 90) -> Object:
        """The event of that reason whose message contains `text`."""
        deadline = time.monotonic() + seconds
        while True:
            found = await self.events(name)
            for one in found:
                if one["reason"] == reason and text in one["message"]:
                    return one
            seen = "\n".join(f"  {one['reason']}: {one['message']}" for one in found)
            assert time.monotonic() < deadline, f"no event {reason} with {text!r} on {name}; there are:\n{seen}"
            await asyncio.sleep(0.2)

    # --- kubectl ---------------------------------------------------------------------------------------------------

    @property
    def kubectl_argv(self) -> list[str]:
        return [self.cluster.tools["kubectl"], f"--kubeconfig={self.cluster.admin_kubeconfig}", "-n", self.namespace]

    async def kubectl(
        self, *arguments: str, stdin: bytes | None = None, check: bool = True, timeout: float = 120
    ) -> Completed:
        return await run([*self.kubectl_argv, *arguments], stdin=stdin, check=check, timeout=timeout)

    @contextlib.asynccontextmanager
    async def kubectl_running(self, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A kubectl that goes on (logs -f, attach, port-forward), ended with the block."""
        process = await asyncio.create_subprocess_exec(
            *self.kubectl_argv,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()

    async def shell(self, name: str, script: str, box: str = "main", *, check: bool = True) -> str:
        """The output of a script run inside a container."""
        done = await self.kubectl("exec", name, "-c", box, "--", "sh", "-c", script, check=check)
        return done.text

    # --- the nodes -------------------------------------------------------------------------------------------------

    def address(self, node: str) -> str:
        return next(one.address for one in self.cluster.nodes if one.name == node)

    def pid(self, node: str, program: str) -> int:
        """0 while it does not run."""
        row = units.programs(self.cluster.unit_dir(node)).get(program)
        return int(row["pid"]) if row and row["alive"] else 0

    async def pid_once_running(self, node: str, program: str, *, other_than: int = 0, seconds: float = 60) -> int:
        deadline = time.monotonic() + seconds
        while (pid := self.pid(node, program)) in (0, other_than):
            assert time.monotonic() < deadline, f"{program} of {node} does not run after {seconds:g} s"
            await asyncio.sleep(0.05)
        return pid

    async def kill(self, node: str, program: str) -> int:
        """SIGKILL a daemon of a node and wait until its supervisor has started it again: the new pid."""
        first = await self.pid_once_running(node, program)
        os.kill(first, signal.SIGKILL)
        return await self.pid_once_running(node, program, other_than=first)

    async def agent_well(self, node: str, seconds: float = 60) -> None:
        """Wait until the agent's own health check succeeds."""

        async def healthy() -> bool:
            done = await self.in_node(node, "curl", "-s", "-m", "5", "http://127.0.0.1:10248/healthz", check=False)
            return done.text == "ok"

        await holds(healthy, f"the agent of {node} is healthy", seconds)

    async def in_node(self, node: str, *argv: str, stdin: bytes | None = None, check: bool = True) -> Completed:
        """A command as a process of a node."""
        return await run(in_node(self.cluster.namespaces(node), argv), stdin=stdin, check=check)

    def folder(self, node: str) -> Path:
        """A new folder that has the same path on the node and here."""
        made = Path(self.cluster.node_dir(node), "commands", f"test-{uuid.uuid4().hex[:8]}")
        made.mkdir()
        return made

    @contextlib.asynccontextmanager
    async def cri(self, node: str) -> AsyncIterator[Cri]:
        """The node's containerd."""
        pid = await self.pid_once_running(node, "containerd")
        cri = Cri(f"/proc/{pid}/root/run/containerd/containerd.sock")
        try:
            yield cri
        finally:
            await cri.close()

    async def sandboxes(self, node: str) -> tuple[SandboxState, ...]:
        async with self.cri(node) as cri:
            return await cri.list_sandboxes()

    async def attempts(self, node: str) -> tuple[ContainerState, ...]:
        """All containers that the node's containerd has, ended ones too."""
        async with self.cri(node) as cri:
            return await cri.list_containers()

    async def pod_net(self, obj: Object) -> str:
        """A file that is the pod's network namespace, seen from the host."""
        box = status_of(obj, obj["spec"]["containers"][0]["name"])["containerID"].removeprefix("containerd://")
        node = obj["spec"]["nodeName"]
        listed = await self.in_node(
            node, self.cluster.tools["ctr"], "-a", "/run/containerd/containerd.sock", "-n", "k8s.io", "task", "ls"
        )
        pids = {line.split()[0]: line.split()[1] for line in listed.text.splitlines()[1:]}
        one = process_one.alive(units.machine_lock(self.cluster.unit_dir(node)))
        return f"/proc/{process_one.outer_pid(one, int(pids[box]))}/ns/net"

    async def left(self, node: str) -> Left:
        """What pods have on a node now."""
        links = json.loads((await self.in_node(node, "ip", "-j", "link", "show", "master", "nw0")).stdout)
        store = Path(self.cluster.node_dir(node), "cni/state/nodewright/nodewright")
        pods_dir, logs = (
            Path(self.cluster.node_dir(node), "kubelet/pods"),
            Path(self.cluster.node_dir(node), "pod-logs"),
        )
        pid = await self.pid_once_running(node, "containerd")
        mounts = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
        tree = f"{self.cluster.cgroup}/{node}/kubepods".lstrip("/")
        async with self.cri(node) as cri:
            sandboxes, containers = await cri.list_sandboxes(), await cri.list_containers()
        return Left(
            addresses=frozenset(one for one in os.listdir(store) if one[0].isdigit()),
            veths=frozenset(one["ifname"] for one in links),
            cgroups=frozenset(
                str(path) for root in Path("/sys/fs/cgroup").iterdir() for path in root.glob(f"{tree}/**/pod*")
            ),
            mounts=frozenset(line.split()[4] for line in mounts if "/kubelet/pods/" in line or "/netns/" in line),
            sandboxes=frozenset(one.id for one in sandboxes),
            containers=frozenset(one.id for one in containers),
            directories=frozenset(str(path) for root in (pods_dir, logs) for path in root.iterdir()),
        )

    async def nothing_beyond(self, node: str, before: Left, seconds: float = 150) -> None:
        """Until the node has of pods only what it had before."""
        deadline, more = time.monotonic() + seconds, {"not asked": [""]}
        while more:
            with contextlib.suppress(CriUnavailable):
                more = (await self.left(node)).beyond(before)
            assert not more or time.monotonic() < deadline, more
            await asyncio.sleep(0.2)

    def stopped_api_server(self, seconds_at_most: float) -> contextlib.AbstractAsyncContextManager[None]:
        """SIGSTOP of the API server for the block; it goes on in the end, whatever happens."""
        return _stopped(self.pid(CONTROL_PLANE, "kube-apiserver"), seconds_at_most)

    def stopped_agent(self, node: str, seconds_at_most: float) -> contextlib.AbstractAsyncContextManager[None]:
        """SIGSTOP of a node's agent for the block, which must not last longer."""
        return _stopped(self.pid(node, "agent"), seconds_at_most)

    def agent_log(self, node: str) -> str:
        return Path(self.cluster.log_dir(node), "agent.log").read_text(errors="replace")


@contextlib.asynccontextmanager
async def _stopped(pid: int, seconds_at_most: float) -> AsyncIterator[None]:
    assert pid
    began = start_time(pid)
    os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(seconds_at_most):
            yield
    finally:
        if start_time(pid) == began:
            os.kill(pid, signal.SIGCONT)


async def holds(wanted: Callable[[], Awaitable[object]], what: str, seconds: float = 90) -> object:
    """The first true value of `wanted()`, waited for with a generous limit; an error while asking means "not yet"."""
    deadline, last = time.monotonic() + seconds, ""
    while True:
        try:
            if found := await wanted():
                return found
        except NodewrightError as error:
            last = str(error)
        assert time.monotonic() < deadline, f"not in {seconds:g} s: {what} {last}"
        await asyncio.sleep(0.2)


@dataclass
class Load:
    """Steady requests from somewhere: each a new connection."""

    process: subprocess.Popen[str]

    def stop(self) -> dict[str, Any]:
        """{"asked": n, "failed": [text], "by": {answer: count}, "slowest": seconds}"""
        assert self.process.stdin is not None
        out, _ = self.process.communicate("", timeout=60)
        found: dict[str, Any] = json.loads(out)
        return found


@contextlib.contextmanager
def load(urls: Sequence[str], *, net: str = "", pause: float = 0.02) -> Any:
    """Ask each URL every `pause` seconds, from a network namespace or from the host."""
    enter = ["nsenter", f"--net={net}"] if net else []
    process = subprocess.Popen(
        [*enter, sys.executable, "-I", "-S", str(_LOAD), str(pause), *urls],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Load(process)
    finally:
        process.kill()
        process.wait()


async def datagram(net: str, host: str, port: int, text: str, *, source: int) -> str:
    """The answer to one datagram sent from a fixed port of a network namespace; "" for none within two seconds."""
    code = (
        "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2);"
        f"s.bind(('', {source})); s.sendto({text.encode()!r}, ({host!r}, {port})); print(s.recv(2048).decode(), end='')"
    )
    enter = ["nsenter", f"--net={net}", sys.executable, "-I", "-S", "-c", code]
    return (await run(enter, check=False)).text


def rss(pid: int) -> int:
    """Resident memory in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, by its clock, which counts nanoseconds (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


@contextlib.asynccontextmanager
async def configured(world: World, node: str, **changes: Any) -> AsyncIterator[None]:
    """The node's agent with other settings for the block."""
    file = Path(world.cluster.node_dir(node), "kubernetes", "kubelet.yaml")
    before = file.read_text()
    try:
        file.write_text(json.dumps({**json.loads(before), **changes}))
        await world.kill(node, "agent")
        await world.agent_well(node)
        yield
    finally:
        file.write_text(before)
        await world.kill(node, "agent")
        await world.agent_well(node)
