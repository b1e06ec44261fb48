"""/pods, /allocatedPods, /runningpods/ and /checkpoint: the pods of this node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aiohttp import web

from agent.common.model.pods import Pod, RunState
from agent.server.work.dependencies import ServerDeps
from agent.server.work.responses import Refused, find_pod, json, of_error, pod_list
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, NotFound
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339
from nodelib.text_numbers import is_number

_DIGITS = 19  # fewer make an int64


class Pods:
    """What the agent and the runtime know about the pods."""

    def __init__(self, deps: ServerDeps, clock: Clock) -> None:
        self._deps, self._clock = deps, clock

    async def list(self, request: web.Request) -> web.StreamResponse:
        uids = [pod.uid for pod in self._deps.pods.pods()]
        return await pod_list(request, (self._with_status(pod) for pod in self._now(uids)))

    async def allocated(self, request: web.Request) -> web.StreamResponse:
        """Pods that hold resources, as this node has granted them, and without their status."""
        uids = [pod.uid for pod in self._deps.pods.active()]
        return await pod_list(request, (_as_allocated(pod) for pod in self._now(uids)))

    async def one_allocated(self, request: web.Request) -> web.Response:
        pod = find_pod(self._deps.pods, request, "pod not found")
        holds = pod.uid in {one.uid for one in self._deps.pods.active()}
        if not holds or request.match_info.get("uid", pod.uid) != pod.uid:
            raise Refused(404, "pod not found")
        return json({"kind": "Pod", "apiVersion": "v1", **_as_allocated(pod)})

    async def running(self, request: web.Request) -> web.StreamResponse:
        """What the runtime reports as running, whether the agent wants it or not, as upstream."""
        try:
            containers = await self._deps.runtime.list_containers()
            sandboxes = await self._deps.runtime.list_sandboxes()
        except NodewrightError as error:
            raise of_error(error) from error
        pods: dict[str, Json] = {}
        for sandbox in sandboxes:
            if sandbox.ready:
                meta = {"name": sandbox.name, "namespace": sandbox.namespace, "uid": sandbox.uid}
                pods[sandbox.uid] = {"metadata": meta, "spec": {"containers": []}, "status": {}}
        for container in containers:
            if container.state is RunState.RUNNING and container.uid in pods:
                entry = {"name": container.name, "image": container.image, "resources": {}}
                pods[container.uid]["spec"]["containers"].append(entry)
        return await pod_list(request, pods.values())

    async def checkpoint(self, request: web.Request) -> web.Response:
        """Let the runtime write a checkpoint, which needs CRIU. When it cannot, the answer has the runtime's error."""
        name = request.match_info["container"]
        pod = find_pod(self._deps.pods, request, "pod does not exist")
        if pod.container(name) is None:
            raise Refused(404, f"container {name} does not exist")
        timeout = request.query.getall("timeout", ["0"])[-1]
        if not (is_number(timeout) and len(timeout) < _DIGITS):
            raise Refused(404, "cannot parse value of timeout parameter")
        found = self._deps.pods.observed(pod.uid).latest(name)
        stamp = format_rfc3339(int(self._clock.now()))
        path = f"{self._deps.node.checkpoint_dir}/checkpoint-{pod.name}_{pod.namespace}-{name}-{stamp}.tar"
        try:
            if found is None or found.state is not RunState.RUNNING:
                raise NotFound(f"container {name} does not run")
            await self._deps.runtime.checkpoint_container(found.id, path, int(timeout))
        except NodewrightError as error:
            raise Refused(500, f"checkpointing of {pod.full_name}/{name} failed ({error.message})") from error
        return json({"items": [path]})

    def _now(self, uids: Iterable[str]) -> Iterator[Pod]:
        """These pods, each as it is when it is sent: a client that reads slowly keeps no pod that has changed since."""
        return (pod for uid in uids if (pod := self._deps.pods.pod_by_uid(uid)) is not None)

    def _with_status(self, pod: Pod) -> Json:
        status = self._deps.pods.status(pod.uid)
        return {**pod.raw, "status": status} if status else pod.raw


def _as_allocated(pod: Pod) -> Json:
    return {**pod.raw, "status": {}}
