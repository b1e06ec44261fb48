"""A whole node in memory: the real PodWorkers, Observer and StatusManager, with fakes of the world around them."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any

from agent.admission.plan.admit import NodeView
from agent.common.model import labels
from agent.common.model.errors import AttachLimitExceeded
from agent.common.model.pods import ContainerState, ImageFacts, Pod, ProbeState
from agent.common.model.states import BackOffBounds
from agent.common.work.gate import Gate
from agent.common.work.pod_warnings import PodWarnings
from agent.containers.model import ContainerInputs, PreparedPod
from agent.devices.work.devices import DeviceHooks, DeviceManager
from agent.devices.work.dra import DraManager, DraManagerDeps
from agent.images.model.pulls import PullCredential
from agent.images.plan.pull_records import VerifyPolicy
from agent.images.work.images import ImageManager, ImageManagerDeps
from agent.images.work.pull_records import PullRecords
from agent.managers.plan.admission import Policies
from agent.managers.work import ResourceManagerHooks, ResourceManagers, TopologyAffinity
from agent.pods.plan.mirrors import is_mirror
from agent.pods.work.deps import ContainerDeps, PodDeps, ResourceDeps, StatusDeps
from agent.pods.work.ends import Ends
from agent.pods.work.hooks import Hooks
from agent.pods.work.plan_turns import PlanTurns
from agent.pods.work.pod_workers import PodWorkers
from agent.pods.work.registry import PodRegistry
from agent.pods.work.start_notes import note_shown_ready
from agent.pods.work.startup_latency import StartupLatencyTracker
from agent.pods.work.status_manager import StatusManager
from agent.pods.work.terminations import Terminations
from agent.pods.work.tracing import PodTracing
from agent.pods.work.volume_refreshes import VolumeRefreshes
from agent.probes.model import ProbeAnswer
from agent.resources.model import Limits, MemoryUse
from agent.resources.plan.cgroups import Policy, limits_of_pod
from agent.resources.plan.container_limits import Machine, container_resources
from agent.resources.work.allocations import Allocations
from agent.runtime.work.observer import Observer
from agent.volumes.model.volumes import MountedVolume
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.kube.client import ApiError
from nodelib.tasks import cancel_and_wait
from nodelib.traces.model import Span
from tests.builders.metrics import metrics
from tests.builders.pods import BUSYBOX, pod_json
from tests.fakes.clock import FakeClock, settle
from tests.fakes.devices import FakeEndpoint
from tests.fakes.dra import NoClaims, no_driver
from tests.fakes.fake_cri import FakeCri
from tests.fakes.userns import FakeMappings, user_namespaces

IMAGE = BUSYBOX


class FakeVolumes:
    """Volumes are mounted at once, unless `missing` names what a pod lacks (`full`: room on the node). `slow`: mount()
    waits for this event; `refused`: how often mount() gets no token after that. `stuck`: UIDs of pods whose volumes
    cannot be unmounted."""

    def __init__(self) -> None:
        self.mounted: set[str] = set()
        self.missing: str = ""
        self.full = False
        self.slow: asyncio.Event | None = None
        self.refused = 0
        self.release_fails = 0
        self.stuck: set[str] = set()
        self.refreshed: list[str] = []

    async def mount(self, pod: Pod) -> Mapping[str, MountedVolume]:
        if self.missing:
            kind = AttachLimitExceeded if self.full else Temporary
            raise kind(self.missing, obj=f"pod {pod.full_name}")
        if self.slow is not None:
            await self.slow.wait()
        if self.refused:
            self.refused -= 1
            raise Temporary("failed to fetch token", obj=f"pod {pod.full_name}")
        self.mounted.add(pod.uid)
        images = {one["name"]: one["image"]["reference"] for one in pod.spec.get("volumes") or [] if one.get("image")}
        return {name: MountedVolume(name, "", True, image) for name, image in images.items()}

    async def sources_ready(self, pod: Pod) -> bool:
        return not self.missing

    async def refresh(self, pod: Pod) -> None:
        self.refreshed.append(pod.uid)

    async def release(self, uid: str) -> None:
        if uid in self.stuck:
            raise Temporary("device is busy")
        if self.release_fails:
            self.release_fails -= 1
            raise Temporary("device is busy")
        self.mounted.discard(uid)

    async def pods_on_disk(self) -> list[str]:
        return sorted(self.mounted)


class FakeConfigs:
    """Small configurations; `bad_config` is the message with which container_config() fails.

    `slow`: services() waits for it.
    """

    def __init__(self) -> None:
        self.bad_config: str = ""
        self.slow: asyncio.Event | None = None

    async def services(self, pod: Pod) -> tuple[Json, ...]:
        if self.slow is not None:
            await self.slow.wait()
        return ()

    async def sandbox_config(self, pod: Pod, prepared: PreparedPod, attempt: int) -> Json:
        meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid, "attempt": attempt}
        network = {"network": "NODE" if pod.host_network else "POD"}
        linux = {"security_context": {"namespace_options": network}, "cgroup_parent": prepared.cgroup_parent}
        marks = {"labels": labels.sandbox_labels(pod), "annotations": dict(pod.meta.get("annotations") or {})}
        return {"metadata": meta, "linux": linux, **marks}

    async def container_config(self, pod: Pod, container: Json, prepared: PreparedPod, inputs: ContainerInputs) -> Json:
        if self.bad_config:
            raise Temporary(self.bad_config)
        return {
            "metadata": {"name": container["name"], "attempt": inputs.attempt},
            "image": {"image": inputs.image_ref},
            "labels": labels.container_labels(pod, container),
            "annotations": labels.container_annotations(pod, container, inputs.attempt),
            "linux": {"resources": self.container_resources(pod, container)},
            "mounts": [
                {"image": {"image": found.image_ref}}
                for mount in container.get("volumeMounts") or []
                if (found := prepared.volumes.get(mount["name"])) is not None and found.image
            ],
        }

    def container_resources(self, pod: Pod, container: Json) -> Json:
        return container_resources(pod, container, Policy(), Machine(memory=4 << 30, cgroup_version=1))


class FakePullSecrets:
    """`credentials` by pod UID."""

    def __init__(self) -> None:
        self.credentials: dict[str, PullCredential] = {}

    async def pull_auth(self, pod: Pod, image: str) -> list[PullCredential]:
        return [one for one in (self.credentials.get(pod.uid),) if one is not None]


class FakeCgroups:
    """`have`: the limits of each pod's cgroup; `use`: bytes in use by UID or container id; `log`: every write."""

    def __init__(self, log: list[tuple[str, str]]) -> None:
        self.made: set[str] = set()
        self.have: dict[str, Limits] = {}
        self.use: dict[str, int] = {}
        self.log = log
        self.fail: list[Exception] = []
        self.ended: list[tuple[str, str]] = []  # (UID, container id) of end_container()
        self.on_end: Callable[[str], None] | None = None

    async def ensure_pod(self, pod: Pod, *, keep: bool = False) -> str:
        if keep and pod.uid in self.made:
            return f"/kubepods/pod{pod.uid}"
        self.made.add(pod.uid)
        self.have[pod.uid] = replace(Limits(2, -1, 100_000, 0), **_given(self.wanted(pod)))
        return f"/kubepods/pod{pod.uid}"

    def wanted(self, pod: Pod) -> Limits:
        return limits_of_pod(pod, Policy())

    async def limits(self, pod: Pod) -> Limits | None:
        return self.have[pod.uid]

    async def set_limits(self, pod: Pod, limits: Limits) -> None:
        await asyncio.sleep(0)
        if self.fail:
            raise self.fail.pop(0)
        before = self.have[pod.uid]
        changed = [
            name for name in ("cpu_shares", "cpu_quota", "memory") if getattr(limits, name) != getattr(before, name)
        ]
        self.log.append(
            ("set_limits", f"{pod.name} " + " ".join(f"{name}={getattr(limits, name)}" for name in changed))
        )
        self.have[pod.uid] = limits

    async def memory_use(self, pod: Pod, container_ids: Iterable[str]) -> MemoryUse:
        return MemoryUse(self.use.get(pod.uid, 0), {one: self.use.get(one, 0) for one in container_ids})

    async def end_container(self, uid: str, container_id: str) -> None:
        self.ended.append((uid, container_id))
        if self.on_end is not None:
            self.on_end(container_id)

    async def remove_pod(self, uid: str) -> None:
        self.made.discard(uid)
        self.have.pop(uid, None)

    async def pod_uids(self) -> frozenset[str]:
        return frozenset(self.made)


def _given(limits: Limits) -> dict[str, Any]:
    return {
        name: value for name in ("cpu_shares", "cpu_quota", "memory") if (value := getattr(limits, name)) is not None
    }


class FakeCheckpoints:
    """Files in memory; each error in `fail` is raised by one write."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.fail: list[Exception] = []

    async def read(self, name: str) -> str | None:
        return self.files.get(name)

    async def write(self, name: str, text: str) -> None:
        await asyncio.sleep(0)
        if self.fail:
            raise self.fail.pop(0)
        self.files[name] = text

    async def remove(self, name: str) -> None:
        self.files.pop(name, None)

    async def names(self) -> list[str]:
        return sorted(self.files)

    async def set_aside(self, name: str) -> str:
        self.files[f"{name}.unreadable"] = self.files.pop(name)
        return f"{name}.unreadable"


class FakeProbes:
    def __init__(self) -> None:
        self.answers: dict[str, dict[str, ProbeState]] = {}
        self.ensured: set[str] = set()

    def ensure(self, pod: Pod, running: Mapping[str, ContainerState], ips: tuple[str, ...]) -> None:
        self.ensured = set(running)

    def restore(self, uid: str, shown: Pod) -> None:
        return

    def states(self, uid: str) -> Mapping[str, ProbeState]:
        return self.answers.get(uid, {})

    def findings(self, uid: str) -> tuple[ProbeAnswer, ...]:
        return ()

    async def first_round(self) -> None:
        return

    def remove(self, uid: str) -> None:
        self.answers.pop(uid, None)


class FakeEvents:
    def __init__(self) -> None:
        self.emitted: list[tuple[str, str, str]] = []

    def emit(
        self,
        about: Json,
        kind: str,
        reason: str,
        message: str,
        *,
        container: str = "",
        host: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        self.emitted.append((kind, reason, message))

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.emitted]


class FakeFiles:
    """`logs`: UIDs of pods that have a log directory."""

    def __init__(self) -> None:
        self.logs: set[str] = set()

    async def termination_message(self, container: ContainerState) -> str:
        return ""

    async def container_started(self, pod: Pod, name: str, container_id: str, log_path: str) -> None:
        self.logs.add(pod.uid)

    async def remove_container_logs(self, container: ContainerState) -> None:
        return

    async def remove_pod_logs(self, pod: Pod) -> None:
        self.logs.discard(pod.uid)

    async def logged_pods(self) -> frozenset[str]:
        return frozenset(self.logs)

    async def remove_left_logs(self, uid: str) -> None:
        self.logs.discard(uid)


class FakeHookHttp:
    async def get(self, url: str, headers: Mapping[str, str], *, pod: str = "") -> None:
        return


class FakePodsApi:
    """The API's pods: patches are applied (lists by name or type), deletions remove them, `inbox` gets the changes."""

    def __init__(self, clock: FakeClock) -> None:
        self.pods: dict[str, Json] = {}
        self.inbox: Callable[[str, Json, Json | None], None] | None = None
        self.fail: list[Exception] = []
        self.statuses: list[Json] = []
        self._clock = clock
        self._version = 100

    def create(self, raw: Json) -> Pod:
        self._version += 1
        meta = {"resourceVersion": str(self._version), "generation": 1, **raw["metadata"]}
        made = {**raw, "metadata": meta, "status": raw.get("status") or {"phase": "Pending"}}
        self.pods[meta["uid"]] = made
        self._tell("ADDED", made)
        return Pod(made)

    def ask_deletion(self, uid: str, grace: int) -> None:
        meta = {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": grace}
        self._change(uid, lambda raw: raw["metadata"].update(meta))

    def update(self, uid: str, change: Any) -> None:
        self._change(uid, change)

    def vanish(self, uid: str) -> None:
        """Delete by force: the API does not wait for the node."""
        self._tell("DELETED", self.pods.pop(uid))

    async def patch_status(self, pod: Pod, patch: Json) -> Json:
        await asyncio.sleep(0)
        if self.fail:
            raise self.fail.pop(0)
        if pod.uid not in self.pods:
            raise ApiError(404, "NotFound", "no such pod")
        self._change(pod.uid, lambda raw: _merge(raw["status"], patch["status"]))
        shown = self.pods[pod.uid]
        self.statuses.append(copy.deepcopy(shown["status"]))
        return shown

    async def delete(self, pod: Pod) -> None:
        await asyncio.sleep(0)
        if self.fail:
            raise self.fail.pop(0)
        if pod.uid in self.pods:
            self.vanish(pod.uid)

    async def runtime_handler(self, class_name: str) -> str:
        return class_name

    def _change(self, uid: str, change: Any) -> None:
        raw = copy.deepcopy(self.pods[uid])
        change(raw)
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        self.pods[uid] = raw
        self._tell("MODIFIED", raw)

    def _tell(self, kind: str, raw: Json) -> None:
        if self.inbox is not None:
            self.inbox(kind, raw, None)


def _merge(status: Json, patch: Json) -> None:
    for name, value in patch.items():
        if name == "conditions":
            merged = {one["type"]: one for one in status.get("conditions") or []}
            gone = {one["type"] for one in value if one.get("$patch") == "delete"}
            merged.update({one["type"]: {k: v for k, v in one.items() if v is not None} for one in value})
            status["conditions"] = [one for one in merged.values() if one["type"] not in gone]
        elif isinstance(value, list):
            status[name] = [one for one in value if one != {"$patch": "replace"}]
        elif value is None:
            status.pop(name, None)
        elif isinstance(value, dict):
            status[name] = dict(status.get(name) or {})
            _merge(status[name], value)
        else:
            status[name] = value


_THREADS_BY = 20  # seconds of the fake clock


class World:
    """A test may start and kill the agent as often as it likes: runtime, API and disk stay."""

    def __init__(self, runtime: type[FakeCri] = FakeCri) -> None:
        self.clock = FakeClock()
        self.cri = runtime(self.clock)
        self.cri.images[IMAGE] = ImageFacts("sha256:1", (IMAGE,))
        self.api = FakePodsApi(self.clock)
        self.volumes, self.configs, self.pull_secrets = FakeVolumes(), FakeConfigs(), FakePullSecrets()
        self.cgroups = FakeCgroups(self.cri.calls)
        self.checkpoints, self.pulling, self.pulled = FakeCheckpoints(), FakeCheckpoints(), FakeCheckpoints()
        self.metrics, self.mappings = metrics(), FakeMappings()
        self.files = FakeFiles()
        self.probes = FakeProbes()
        self.events = FakeEvents()
        self.node = NodeView(name="n1", allocatable={"cpu": "2", "memory": "4Gi", "pods": "10"})
        self.sources: tuple[str, ...] = ("api",)
        self.plugins: list[FakeEndpoint] = []
        self.policies = Policies()
        self.restarts = BackOffBounds()
        self.start_gate, self.update_gate = Gate(), Gate()
        self.ends = Ends(Gate(), Gate())
        self.release_gate = Gate()
        self.traced = 0  # pods of a million whose spans come into `spans`
        self._made_later: list[Callable[[], Span]] = []
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def spans(self) -> list[Span]:
        """As the exporter makes them: long after what they tell of."""
        return [make() for make in self._made_later]

    def forget_spans(self) -> None:
        self._made_later.clear()

    async def start_agent(self, *, events: bool = True, audits: bool = True) -> None:
        observer = Observer(self.cri, self.files, self.clock, self.metrics)
        self.registry = PodRegistry(observer.seen)
        files = self.files
        startups = StartupLatencyTracker(self.metrics, self.clock)
        allocations = Allocations(self.checkpoints, self.clock)
        await allocations.load()
        affinity = TopologyAffinity()
        devices = self.device_manager(affinity)
        await devices.load()
        self.managers = ResourceManagers(
            self.policies,
            self.checkpoints,
            "/var/lib/kubelet",
            self.cri,
            self.clock,
            10.0,
            ResourceManagerHooks(self.registry.running, devices.topology_hints, affinity),
        )
        await self.managers.load()
        self.records = PullRecords(VerifyPolicy(), self.pulling, self.pulled, self.clock)
        await self.records.load(self.cri.list_images)
        self.terminations = Terminations(self.checkpoints, self.clock)
        await self.terminations.load()
        self.user_namespaces = user_namespaces(self.mappings)
        await self.user_namespaces.load()
        images = ImageManagerDeps(
            self.cri, self.pull_secrets, self.events, self.clock, self.records, self.metrics, startups.pulled
        )
        self.deps = PodDeps(
            resources=ResourceDeps(
                volumes=self.volumes,
                cgroups=self.cgroups,
                devices=devices,
                claims=self.dra_manager(),
                managers=self.managers,
                allocations=allocations,
                user_namespaces=self.user_namespaces,
                warnings=PodWarnings(lambda pod, reason, text: self.events.emit(pod.raw, "Warning", reason, text)),
                volume_refreshes=VolumeRefreshes(self.volumes, self.registry.refresh, self.clock),
            ),
            containers=ContainerDeps(
                runtime=self.cri,
                configs=self.configs,
                images=ImageManager(images),
                hooks=Hooks(self.cri, FakeHookHttp(), self.clock, self.metrics.sleep_terminated.inc),
                files=files,
                restarts=self.restarts,
                sandbox_gate=Gate(),
                start_gate=self.start_gate,
                ends=self.ends,
                release_gate=self.release_gate,
                update_gate=self.update_gate,
            ),
            status=StatusDeps(
                probes=self.probes,
                manager=StatusManager(self.api, self.clock, self.metrics, self._note_shown_ready),
                api=self.api,
                startups=startups,
                terminations=self.terminations,
                mirror=self.mirror,
                computed=self.registry.report_changed,
            ),
            observer=observer,
            events=self.events,
            metrics=self.metrics,
            clock=self.clock,
            plan_turns=PlanTurns(time.thread_time),
            host_ips=lambda: ("10.89.0.11",),
            tracing=PodTracing(self._made_later.append, self.traced, self.clock) if self.traced else None,
        )
        self.workers = PodWorkers(self.registry, self.deps, lambda: self.node, self.sources)
        inbox = self.connected()
        await observer.audit()
        works = [
            observer.run_hints,
            self.workers.run_sweeps,
            self.workers.resizes.run,
            allocations.run,
            self.terminations.run,
        ]
        works.append(self.managers.run)
        works += [observer.run_audits] if audits else []
        works += [observer.run_events] if events else []
        self._tasks = [asyncio.create_task(work()) for work in works]
        self._tasks += [asyncio.create_task(work()) for work in self.further_works()]
        for raw in filter(is_mirror, list(self.api.pods.values())):
            inbox("ADDED", raw, None)
        await self.workers.put_all([Pod(raw) for raw in self.api.pods.values() if not is_mirror(raw)])
        self.api.inbox = inbox
        self.workers.mark_synced("api")
        await settle()

    def _note_shown_ready(self, uid: str) -> None:
        if (memory := self.registry.memory(uid)) is not None:
            note_shown_ready(memory, self.clock)

    def device_manager(self, affinity: TopologyAffinity) -> DeviceManager:
        """No plugin offers devices until a test makes one; the plugins that were dialled are in `plugins`."""
        hooks = DeviceHooks(
            lambda: {pod.uid for pod in self.registry.active()}, lambda: None, self.registry.wake, affinity.of
        )

        def dial(resource: str, socket: str) -> FakeEndpoint:
            self.plugins.append(FakeEndpoint(resource, socket))
            return self.plugins[-1]

        return DeviceManager(self.checkpoints, dial, self.clock, hooks)

    def dra_manager(self) -> DraManager:
        """Overridden by worlds with DRA drivers."""
        return DraManager(
            DraManagerDeps(self.checkpoints, NoClaims(), no_driver, self.clock, lambda: None, lambda: None)
        )

    def mirror(self, pod: Pod) -> Pod | None:
        """Overridden by worlds with static pods."""
        return None

    def connected(self) -> Callable[[str, Json, Json | None], None]:
        """Called when all parts are made; returns the receiver of API changes."""
        return self.workers.on_pod

    def further_works(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return []

    async def kill_agent(self) -> None:
        """As by SIGKILL: nothing is reported or finished."""
        await self._end_agent(self.workers.close())

    async def stop_agent(self) -> None:
        """As by SIGTERM, with a running start that takes longer than the agent waits for it."""
        await self._end_agent(self.workers.close(patience=0.01))

    async def _end_agent(self, stopping: Coroutine[Any, Any, None]) -> None:
        self.api.inbox = None
        await cancel_and_wait(*self._tasks)
        closing = asyncio.gather(self.deps.containers.images.close(), self.deps.status.manager.close(), stopping)
        # Running calls of the runtime are waited for, and their time passes only while the clock is advanced.
        while not closing.done():
            await self.clock.advance(0.5)
        await closing

    def create(self, *containers: Json, name: str = "web", uid: str = "u1", **spec: Any) -> str:
        """A pod bound to this node; its UID."""
        meta = {"namespace": "shop", "uid": uid}
        self.api.create(pod_json(name, *containers, meta=meta, **{"restartPolicy": "Always", **spec}))
        return uid

    async def until(self, what: Any, *, seconds: float = 120, step: float = 0.5) -> None:
        """Let time pass until `what()` is true."""
        passed = 0.0
        await settle()
        while not what():
            if passed >= seconds:
                raise AssertionError(f"not within {seconds} s; {self.cri.dump()}; {self.registry.memory('u1')}")
            await self.clock.advance(step)
            await settle()
            passed += step
            if passed > _THREADS_BY:
                await asyncio.sleep(0.01)  # two minutes of this clock are 30 ms: threads of a busy machine come later

    def status(self, uid: str = "u1") -> Json:
        """The status in the API."""
        found: Json = self.api.pods[uid]["status"]
        return found

    def phase(self, uid: str = "u1") -> str:
        return str(self.status(uid).get("phase", ""))

    def condition(self, kind: str, uid: str = "u1") -> str:
        found = [one["status"] for one in self.status(uid).get("conditions") or [] if one["type"] == kind]
        return str(found[0]) if found else ""

    def container_status(self, name: str = "main", uid: str = "u1") -> Json:
        lists = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        for listed in lists:
            for one in self.status(uid).get(listed) or []:
                if one["name"] == name:
                    return dict(one)
        return {}

    def is_ready(self, uid: str = "u1") -> bool:
        return self.condition("Ready", uid) == "True"

    def is_gone(self, uid: str = "u1") -> bool:
        return uid not in self.api.pods and not self.cri.dump() and not self.registry.pods() and not self.files.logs
