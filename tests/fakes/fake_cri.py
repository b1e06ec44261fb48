"""A container runtime in memory: agent.runtime.model.RuntimeService and ImageService, with switches for failure.

It refuses what a real one refuses (a container in a sandbox that is not ready, a second
container of the same name and attempt, a start of what has been started) and counts what was
done, so that a test can say "never started twice" of any interleaving.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from agent.common.model.errors import CriError, CriNotFound, CriUnavailable
from agent.common.model.pods import ContainerState, ExecResult, ImageFacts, RunState, SandboxState
from agent.runtime.model import RuntimeEvent
from nodelib.clock import Clock
from nodelib.json_values import Json


class FakeCri:
    """`fail[method]` raises that often with the given error; `before[method]` is awaited before the call acts.

    `drop_events`/`double_events` bend the event stream; `images` maps a reference to its facts,
    `registry` what a pull would find.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.sandboxes: dict[str, SandboxState] = {}
        self.containers: dict[str, ContainerState] = {}
        self.images: dict[str, ImageFacts] = {}
        self.registry: dict[str, ImageFacts] = {}
        self.calls: list[tuple[str, str]] = []
        self.starts: Counter[tuple[str, str, int]] = Counter()
        self.fail: dict[str, list[Exception]] = {}
        self.before: dict[str, Callable[[str], object]] = {}
        self.ignores_term: set[str] = set()
        self.term_codes: dict[str, int] = {}
        self.exec_results: dict[tuple[str, ...], ExecResult] = {}
        self.drop_events = False
        self.double_events = False
        self._ids = itertools.count(1)
        self._events: asyncio.Queue[RuntimeEvent] = asyncio.Queue()

    # --- what a test does to it

    def exit(self, name: str, code: int = 0, reason: str = "") -> ContainerState:
        """The running container `name` ends by itself."""
        one = next(one for one in self.containers.values() if one.name == name and one.state is RunState.RUNNING)
        ended = self._ended(one, code, reason)
        self._send(one.uid, one.id, "CONTAINER_STOPPED_EVENT", ended)
        return ended

    def kill_sandbox(self, uid: str) -> None:
        """The pause process of a pod dies, and with it everything in its sandbox."""
        for one in list(self.sandboxes.values()):
            if one.uid == uid:
                self.sandboxes[one.id] = replace(one, ready=False)
        for container in list(self.containers.values()):
            if container.uid == uid and container.state is RunState.RUNNING:
                self._ended(container, 137, "Error")
        self._send(uid, uid, "CONTAINER_STOPPED_EVENT")

    def send(self, event: RuntimeEvent) -> None:
        """An event of the runtime's own."""
        self._events.put_nowait(event)

    def break_stream(self) -> None:
        """The event stream fails; the runtime stays."""
        self._events.put_nowait(RuntimeEvent("", "", "BROKEN"))

    def dump(self) -> list[str]:
        """Everything that there is, sorted."""
        boxes = [
            f"sandbox {one.name}/{one.attempt} {'ready' if one.ready else 'stopped'}" for one in self.sandboxes.values()
        ]
        made = [f"container {one.name}/{one.attempt} {one.state.value}" for one in self.containers.values()]
        return sorted(boxes + made)

    def done(self, method: str) -> list[str]:
        """What `method` was called with, in order."""
        return [what for name, what in self.calls if name == method]

    def running(self) -> list[str]:
        return sorted(one.name for one in self.containers.values() if one.state is RunState.RUNNING)

    # --- Runtime

    async def list_sandboxes(self, uid: str | None = None) -> tuple[SandboxState, ...]:
        await self._enter("list_sandboxes", uid or "")
        return tuple(replace(one, ips=()) for one in self.sandboxes.values() if uid in (None, one.uid))

    async def list_containers(self, uid: str | None = None) -> tuple[ContainerState, ...]:
        await self._enter("list_containers", uid or "")
        listed = [one for one in self.containers.values() if uid in (None, one.uid)]
        # A list does not say that a start was cut: the container has exited.
        listed = [replace(one, state=RunState.EXITED, cut=False) if one.cut else one for one in listed]
        return tuple(replace(one, started_at=0, finished_at=0, exit_code=0, reason="") for one in listed)

    async def sandbox_status(self, sandbox_id: str) -> SandboxState:
        await self._enter("sandbox_status", sandbox_id)
        return self._sandbox(sandbox_id)

    async def container_status(self, container_id: str) -> ContainerState:
        await self._enter("container_status", container_id)
        return self._container(container_id)

    async def run_sandbox(self, config: Json, runtime_handler: str = "") -> str:
        meta = config["metadata"]
        await self._enter("run_sandbox", f"{meta['name']}/{meta['attempt']}")
        for one in self.sandboxes.values():
            if (one.uid, one.attempt) == (meta["uid"], meta["attempt"]):
                name = f'"{meta["name"]}"'
                text = f'failed to reserve sandbox name {name}: name {name} is reserved for "{one.id}"'
                raise CriError(text, code="UNKNOWN")
        number = next(self._ids)
        mode = config.get("linux", {}).get("security_context", {}).get("namespace_options", {}).get("network", "POD")
        made = SandboxState(
            id=f"s{number}",
            uid=meta["uid"],
            namespace=meta["namespace"],
            name=meta["name"],
            attempt=meta["attempt"],
            ready=True,
            created_at=self._now(),
            ips=() if mode == "NODE" else (f"10.244.0.{number + 1}",),
            network_mode=mode,
            labels=dict(config.get("labels") or {}),
            annotations=dict(config.get("annotations") or {}),
        )
        self.sandboxes[made.id] = made
        self._send(made.uid, made.id, "CONTAINER_STARTED_EVENT")
        return made.id

    async def stop_sandbox(self, sandbox_id: str) -> None:
        await self._enter("stop_sandbox", sandbox_id)
        if sandbox_id in self.sandboxes:
            self.sandboxes[sandbox_id] = replace(self.sandboxes[sandbox_id], ready=False)
        for one in list(self.containers.values()):
            if one.sandbox_id == sandbox_id and one.state is RunState.RUNNING:
                self._ended(one, 137, "Error")

    async def remove_sandbox(self, sandbox_id: str) -> None:
        await self._enter("remove_sandbox", sandbox_id)
        self.sandboxes.pop(sandbox_id, None)
        for one in [one for one in self.containers.values() if one.sandbox_id == sandbox_id]:
            del self.containers[one.id]

    async def create_container(self, sandbox_id: str, config: Json, sandbox_config: Json) -> str:
        meta = config["metadata"]
        await self._enter("create_container", f"{meta['name']}/{meta['attempt']}")
        sandbox = self._sandbox(sandbox_id)
        if not sandbox.ready:
            raise CriError("sandbox is not running", code="UNKNOWN")
        for one in self.containers.values():
            if (one.uid, one.name, one.attempt) == (sandbox.uid, meta["name"], meta["attempt"]):
                raise CriError(f"name is reserved for {one.id}", code="UNKNOWN")
        made = ContainerState(
            id=f"c{next(self._ids)}",
            sandbox_id=sandbox_id,
            uid=sandbox.uid,
            name=meta["name"],
            attempt=meta["attempt"],
            state=RunState.CREATED,
            created_at=self._now(),
            image=config["image"]["image"],
            image_ref=config["image"]["image"],
            labels=dict(config.get("labels") or {}),
            annotations=dict(config.get("annotations") or {}),
            mounts=tuple(config.get("mounts") or ()),
            resources=dict((config.get("linux") or {}).get("resources") or {}),
        )
        self.containers[made.id] = made
        self._send(made.uid, made.id, "CONTAINER_CREATED_EVENT")
        return made.id

    async def start_container(self, container_id: str) -> None:
        one = self._container(container_id)
        await self._enter("start_container", f"{one.name}/{one.attempt}")
        one = self._container(container_id)
        if one.state is not RunState.CREATED or one.cut:
            raise CriError(f"container is in {one.state.value} state", code="UNKNOWN")
        alive = [
            other
            for other in self.containers.values()
            if (other.uid, other.name) == (one.uid, one.name) and other.state is RunState.RUNNING
        ]
        assert not alive, f"{one.name}: attempt {one.attempt} starts while {alive[0].attempt} runs"
        self.starts[one.uid, one.name, one.attempt] += 1
        self.containers[container_id] = replace(one, state=RunState.RUNNING, started_at=self._now())
        self._send(one.uid, one.id, "CONTAINER_STARTED_EVENT")

    async def stop_container(self, container_id: str, grace_seconds: int) -> None:
        await self._enter("stop_container", f"{container_id} {grace_seconds}")
        one = self.containers.get(container_id)
        if one is None or one.state is not RunState.RUNNING:
            return
        if one.name in self.ignores_term:
            await self.clock.sleep(grace_seconds)
        if self.containers[container_id].state is RunState.RUNNING:
            code = 137 if one.name in self.ignores_term else self.term_codes.get(one.name, 143)
            ended = self._ended(one, code, "Error" if code else "Completed")
            self._send(one.uid, one.id, "CONTAINER_STOPPED_EVENT", ended)

    async def remove_container(self, container_id: str) -> None:
        await self._enter("remove_container", container_id)
        self.containers.pop(container_id, None)

    async def update_resources(self, container_id: str, linux: Json) -> None:
        one = self._container(container_id)
        text = " ".join(f"{name}={linux.get(name, 0)}" for name in ("cpu_shares", "cpu_quota", "memory_limit_in_bytes"))
        await self._enter("update_resources", f"{one.name} {text}")
        one = self._container(container_id)
        if one.state is not RunState.RUNNING:
            raise CriError(f"container is in {one.state.value} state", code="UNKNOWN")
        self.containers[container_id] = replace(one, resources={**one.resources, **linux})

    async def update_sandbox(self, sandbox_id: str, overhead: Json, resources: Json) -> None:
        self._sandbox(sandbox_id)
        await self._enter("update_sandbox", sandbox_id)

    async def exec_sync(
        self, container_id: str, argv: list[str], timeout: float, *, much_output: bool = False
    ) -> ExecResult:
        await self._enter("exec_sync", " ".join(argv))
        return self.exec_results.get(tuple(argv), ExecResult(0, b"", b""))

    async def exec_url(
        self, container_id: str, argv: list[str], *, tty: bool, stdin: bool, stdout: bool, stderr: bool
    ) -> str:
        return f"http://127.0.0.1:1/exec/{container_id}"

    async def attach_url(self, container_id: str, *, tty: bool, stdin: bool, stdout: bool, stderr: bool) -> str:
        return f"http://127.0.0.1:1/attach/{container_id}"

    async def port_forward_url(self, sandbox_id: str, ports: list[int]) -> str:
        return f"http://127.0.0.1:1/portforward/{sandbox_id}"

    async def reopen_log(self, container_id: str) -> None:
        await self._enter("reopen_log", container_id)

    async def checkpoint_container(self, container_id: str, path: str, timeout: int) -> None:
        raise CriError("CRIU is not here", code="UNKNOWN")

    async def sandbox_stats(self) -> list[Json]:
        return []

    async def status(self) -> Json:
        ready = [{"type": kind, "status": True} for kind in ("RuntimeReady", "NetworkReady")]
        return {"status": {"conditions": ready}, "runtime_handlers": [], "info": {}}

    async def version(self) -> Json:
        return {"runtime_name": "fake", "runtime_version": "1.0"}

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        while True:
            event = await self._events.get()
            if event.type == "BROKEN":
                raise CriUnavailable("the stream broke", code="UNAVAILABLE")
            yield event

    # --- Images

    async def image_status(self, reference: str) -> ImageFacts | None:
        await self._enter("image_status", reference)
        return self.images.get(reference) or next((one for one in self.images.values() if one.id == reference), None)

    async def pull_image(self, reference: str, auth: Json | None, sandbox_config: Json) -> str:
        await self._enter("pull_image", reference)
        found = self.registry.get(reference)
        if found is None:
            raise CriNotFound(f"{reference}: not found", code="NOT_FOUND")
        self.images[reference] = found
        return found.id

    async def list_images(self) -> tuple[ImageFacts, ...]:
        return tuple(self.images.values())

    async def remove_image(self, reference: str) -> None:
        self.images.pop(reference, None)

    async def image_fs_info(self) -> list[Json]:
        return []

    # ---

    async def _enter(self, method: str, what: str) -> None:
        self.calls.append((method, what))
        hook = self.before.get(method)
        if hook is not None:
            result = hook(what)
            if asyncio.iscoroutine(result) or isinstance(result, asyncio.Future):
                await result
        waiting = self.fail.get(method)
        if waiting:
            raise waiting.pop(0)
        await asyncio.sleep(0)

    def _ended(self, one: ContainerState, code: int, reason: str) -> ContainerState:
        ended = replace(
            one,
            state=RunState.EXITED,
            exit_code=code,
            reason=reason or ("Completed" if code == 0 else "Error"),
            finished_at=self._now(),
        )
        self.containers[one.id] = ended
        return ended

    def _sandbox(self, sandbox_id: str) -> SandboxState:
        if sandbox_id not in self.sandboxes:
            raise CriNotFound(f"sandbox {sandbox_id} not found", code="NOT_FOUND")
        return self.sandboxes[sandbox_id]

    def _container(self, container_id: str) -> ContainerState:
        if container_id not in self.containers:
            raise CriNotFound(f"container {container_id} not found", code="NOT_FOUND")
        return self.containers[container_id]

    def _send(self, uid: str, container_id: str, kind: str, ended: ContainerState | None = None) -> None:
        if self.drop_events:
            return
        for _ in range(2 if self.double_events else 1):
            self._events.put_nowait(RuntimeEvent(uid, container_id, kind, ended))

    def _now(self) -> int:
        # Strictly increasing, as creation times of a real runtime are.
        self._last = max(getattr(self, "_last", 0) + 1, int(self.clock.now() * 1e9))
        return self._last
