"""How fast pods start and go, as a watch sees it, and what the node's daemons cost meanwhile.

Pods are created with spec.nodeName, so the scheduler is not measured, and their image is present. A pod is ready at
the first watch event whose Ready condition is True, and gone at the DELETED event. The same code measures upstream's
kubelet.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from cli.bench.kubelet_api import api_calls, seconds_of_one_each
from cli.bench.reactions import NodePlace, Reacting, Reactions, dying, mounting, probed
from nodelib.clock import Clock
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector

NAMESPACE = "nodewright-bench"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_RECORDS_LIMIT = 150.0  # seconds; upstream's kubelet removes dead containers once a minute
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: `serial` pods one at a time, `rounds` of `together` at once, `bursts` of `burst`.

    The last burst stays while reactions and the cost of probes are measured; then all pods are deleted at once.
    """

    serial: int = 15
    together: int = 10
    rounds: int = 3
    burst: int = 60
    bursts: int = 3
    idle_seconds: float = 15
    deaths: int = 10
    changes: int = 2
    exec_probes: int = 15
    http_probes: int = 25

    @classmethod
    def quick(cls) -> Plan:
        """Measures each row once or twice, to see whether all of it works."""
        return cls(serial=3, rounds=1, bursts=2, idle_seconds=5, deaths=3)


@dataclass(frozen=True, slots=True)
class Usage:
    """A process's CPU seconds since its start, and its resident memory in MiB."""

    cpu: float
    rss: float


@dataclass(slots=True)
class Result:
    """Times in seconds, with one entry for each pod; CPU as seconds or shares of one core; memory in MiB."""

    ready_alone: list[float] = field(default_factory=list)
    ready_without_token: list[float] = field(default_factory=list)
    gone_alone: list[float] = field(default_factory=list)
    ready_together: list[float] = field(default_factory=list)
    gone_together: list[float] = field(default_factory=list)
    own_share: float = 0
    api_share: float = 0  # part of own_share: the API server's, with one call of each kind that a start needs
    burst_all_ready: list[float] = field(default_factory=list)
    burst_all_gone: list[float] = field(default_factory=list)
    everything_gone: float = 0
    agent_cpu_a_pod: float = 0
    agent_idle_few: float = 0
    agent_idle_burst: float = 0
    agent_rss_few: float = 0
    agent_rss_burst: float = 0
    proxy_rss: float = 0
    reactions: Reactions = field(default_factory=Reactions)


def usage(pid: int) -> Usage:
    """Read from /proc; children of `pid` (a shim, a plugin) are not counted."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return Usage((int(fields[11]) + int(fields[12])) / _TICKS, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


class PodBench:
    """Owns the namespace of the bench and a watch on it; `proxy` is the proxy's pid, 0 to leave it out."""

    def __init__(self, client: KubeClient, clock: Clock, *, node: NodePlace, image: str, proxy: int) -> None:
        self._client = client
        self._clock = clock
        self._node, self._image = node.name, image
        self._agent, self._proxy = node.agent(), proxy
        self._reacting = Reacting(client, clock, node, NAMESPACE)
        self._pid = node.agent
        self._ready: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        self._watch = Reflector(client, _PODS, name="bench pods", on_change=self._on_change)

    async def run(self, plan: Plan, say: Callable[[str], None]) -> Result:
        """The whole measurement. The namespace is always removed at the end."""
        result = Result()
        await self._client.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        watch = asyncio.create_task(self._watch.run(), name="bench watch")
        try:
            async with asyncio.timeout(30):
                await self._watch.synced.wait()
            await self._service_account()
            await self._batch(["warm"], Result().ready_alone, [])
            await self._alone(plan, result, say)
            await self._without_token(plan, result, say)
            await self._together(plan, result, say)
            result.agent_rss_few, result.agent_idle_few = await self._idle(plan)
            await self._bursts(plan, result, say)
            await self._standing(plan, result, say)
            result.proxy_rss = usage(self._proxy).rss if self._proxy else 0
        finally:
            watch.cancel()
            await self._reacting.close()
            await asyncio.gather(watch, return_exceptions=True)
            await self._client.delete(f"/api/v1/namespaces/{NAMESPACE}")
        return result

    async def _alone(self, plan: Plan, result: Result, say: Callable[[str], None]) -> None:
        runtime = await self._reacting.kubelet.starting_seconds()
        before, calls = usage(self._agent).cpu, await api_calls(self._client.access)
        for number in range(plan.serial):
            say(f"one at a time: {number + 1} of {plan.serial}")
            await self._batch([f"alone-{number}"], result.ready_alone, result.gone_alone)
        result.agent_cpu_a_pod = (usage(self._agent).cpu - before) / plan.serial
        runtime = await self._reacting.kubelet.starting_seconds() - runtime
        result.own_share = (sum(result.ready_alone) - runtime) / plan.serial
        result.api_share = seconds_of_one_each(calls, await api_calls(self._client.access))

    async def _without_token(self, plan: Plan, result: Result, say: Callable[[str], None]) -> None:
        """Pods without a volume to mount: what a kubelet takes for its volumes is left out."""
        for number in range(plan.serial):
            say(f"one at a time, without a token volume: {number + 1} of {plan.serial}")
            names = [f"tokenless-{number}"]
            await self._batch(names, result.ready_without_token, [], main(self._image, token=False))

    async def _together(self, plan: Plan, result: Result, say: Callable[[str], None]) -> None:
        for turn in range(plan.rounds):
            say(f"{plan.together} at once: round {turn + 1} of {plan.rounds}")
            names = [f"together-{turn}-{number}" for number in range(plan.together)]
            await self._batch(names, result.ready_together, result.gone_together)

    async def _bursts(self, plan: Plan, result: Result, say: Callable[[str], None]) -> None:
        for turn in range(1, plan.bursts):
            names = [f"burst-{turn}-{number}" for number in range(plan.burst)]
            say(f"{plan.burst} at once: {turn} of {plan.bursts}")
            result.burst_all_ready.append(await self._all_ready(names))
            say(f"{plan.burst} at once: going")
            result.burst_all_gone.append(await self._all_gone(names))

    async def _standing(self, plan: Plan, result: Result, say: Callable[[str], None]) -> None:
        names = [f"burst-{number}" for number in range(plan.burst)]
        say(f"{plan.burst} at once: the last time, to stay")
        result.burst_all_ready.append(await self._all_ready(names))
        result.agent_rss_burst, result.agent_idle_burst = await self._idle(plan)
        await self._react(plan, result.reactions, say)
        probed = await self._probes(plan, result.reactions, say)
        say("the kubelet killed")
        known, again = await self._reacting.restarted({*names, *probed}, set(probed))
        result.reactions.restart.append(known)
        result.reactions.probed_again.append(again)
        self._agent = self._pid()
        say(f"all {len(names) + len(probed)}: going")
        result.everything_gone = await self._all_gone([*names, *probed])

    async def _all_ready(self, names: list[str]) -> float:
        began = await self._create(names)
        await self._wait(names, self._ready)
        return max(self._ready[name] for name in names) - min(began.values())

    async def _all_gone(self, names: list[str]) -> float:
        asked = await self._delete(names)
        await self._wait(names, self._gone)
        return max(self._gone[name] for name in names) - min(asked.values())

    async def _react(self, plan: Plan, found: Reactions, say: Callable[[str], None]) -> None:
        say("containers killed")
        names = [f"dies-{number}" for number in range(plan.deaths)]
        await self._create(names, dying())
        await self._wait(names, self._ready)
        for name in names:
            pod = self._watch.store[NAMESPACE, name]
            status = pod["status"]["containerStatuses"][0]
            at = self._reacting.kill(pod["metadata"]["uid"], status["containerID"].rpartition("//")[2])
            async with asyncio.timeout(60):
                while _same_run(status, self._watch.store[NAMESPACE, name]):
                    await asyncio.sleep(0.001)
            found.death.append(self._clock.monotonic() - at)
            # The restart occupies both cores for a while, so wait for it before the next death.
            await self._runs_again(name)
        await self._delete(names)
        say("a ConfigMap changed")
        metadata = {"name": "seen"}
        await self._client.post(
            f"/api/v1/namespaces/{NAMESPACE}/configmaps", {"metadata": metadata, "data": {"key": "0"}}
        )
        await self._create(["sees"], mounting("seen"))
        await self._wait(["sees"], self._ready)
        uid = self._watch.store[NAMESPACE, "sees"]["metadata"]["uid"]
        for turn in range(plan.changes):
            found.change.append(await self._reacting.changed(uid, "seen", str(turn + 1)))
        await self._delete(["sees"])
        await self._wait([*names, "sees"], self._gone)

    async def _runs_again(self, name: str, timeout: float = 60) -> None:
        async with asyncio.timeout(timeout):
            while not _runs(self._watch.store[NAMESPACE, name]):
                await asyncio.sleep(0.005)

    async def _probes(self, plan: Plan, found: Reactions, say: Callable[[str], None]) -> list[str]:
        """Measure what probes cost beside the pods of the burst; returns the names of the probed pods, which stay."""
        say(f"{plan.exec_probes} exec and {plan.http_probes} HTTP probes a second")
        kinds = {"exec": plan.exec_probes, "httpGet": plan.http_probes}
        names = {kind: [f"probed-{kind.lower()}-{number}" for number in range(count)] for kind, count in kinds.items()}
        for kind, listed in names.items():
            await self._create(listed, probed(kind))
        every = [name for listed in names.values() for name in listed]
        await self._wait(every, self._ready)
        found.probing_rss, found.probing = await self._idle(plan)
        return every

    async def _batch(self, names: list[str], ready: list[float], gone: list[float], spec: Json | None = None) -> None:
        began = await self._create(names, spec)
        await self._wait(names, self._ready)
        ready += [self._ready[name] - began[name] for name in names]
        asked = await self._delete(names)
        await self._wait(names, self._gone)
        gone += [self._gone[name] - asked[name] for name in names]

    async def _idle(self, plan: Plan) -> tuple[float, float]:
        """Resident memory, and the share of one core used while idle.

        It first waits until the runtime's records of deleted pods are removed, which each kubelet does in its own
        time.
        """
        await self._records_removed()
        await self._clock.sleep(3)
        before, start = usage(self._agent), self._clock.monotonic()
        await self._clock.sleep(plan.idle_seconds)
        after = usage(self._agent)
        return after.rss, (after.cpu - before.cpu) / (self._clock.monotonic() - start)

    async def _records_removed(self) -> None:
        until = self._clock.monotonic() + _RECORDS_LIMIT
        while self._clock.monotonic() < until:
            pods = await self._client.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={self._node}"})
            if self._reacting.recorded() <= len(pods["items"]):
                return
            await asyncio.sleep(1)

    async def _create(self, names: list[str], spec: Json | None = None) -> dict[str, float]:
        async def create(name: str) -> tuple[str, float]:
            began = self._clock.monotonic()
            await self._client.post(_PODS, _pod(name, self._node, spec or main(self._image)))
            return name, began

        return dict(await asyncio.gather(*(create(name) for name in names)))

    async def _delete(self, names: list[str]) -> dict[str, float]:
        async def delete(name: str) -> tuple[str, float]:
            asked = self._clock.monotonic()
            await self._client.delete(f"{_PODS}/{name}", {"gracePeriodSeconds": 1})
            return name, asked

        return dict(await asyncio.gather(*(delete(name) for name in names)))

    async def _wait(self, names: list[str], seen: dict[str, float], timeout: float = 300) -> None:
        async with asyncio.timeout(timeout):
            while any(name not in seen for name in names):
                await asyncio.sleep(0.005)

    async def _service_account(self, timeout: float = 30) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        async with asyncio.timeout(timeout):
            while not (await self._client.get(path))["items"]:
                await asyncio.sleep(0.05)

    def _on_change(self, kind: str, pod: Json, old: Json | None) -> None:
        name, now = pod["metadata"]["name"], self._clock.monotonic()
        if kind == "DELETED":
            self._gone.setdefault(name, now)
        conditions = (pod.get("status") or {}).get("conditions") or []
        if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
            self._ready.setdefault(name, now)


def main(image: str, *, token: bool = True) -> Json:
    """The spec of a pod with one container; `token`: it has the volume with its service account's token."""
    spec: Json = {"containers": [{"name": "main", "image": image, "imagePullPolicy": "IfNotPresent"}]}
    return spec if token else {**spec, "automountServiceAccountToken": False}


def _same_run(before: Json, pod: Json) -> bool:
    """Whether the API still shows the same container, running."""
    now = (pod["status"].get("containerStatuses") or [{}])[0]
    return now.get("containerID") == before["containerID"] and "running" in (now.get("state") or {})


def _runs(pod: Json) -> bool:
    return "running" in ((pod["status"].get("containerStatuses") or [{}])[0].get("state") or {})


def _pod(name: str, node: str, spec: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, **spec},
    }
