"""Lifecycle hooks: exec in the container, an HTTP request, a sleep (pkg/kubelet/lifecycle/handlers.go).

What a hook writes is quoted once, in at most a KiB, because it goes into the pod's status and the log. Upstream quotes
all of it twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent.common.model.errors import CriError
from agent.common.model.pods import Pod
from agent.common.work.handshakes import of_namespace
from agent.pods.ports import HttpGet
from agent.runtime.ports import RuntimeService
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Permanent
from nodelib.json_values import Json
from nodelib.text import one_line
from nodelib.text_numbers import is_number
from nodelib.version import KUBERNETES_MINOR

_MOST_OUTPUT, _MOST_COMMAND = 1024, 256  # bytes that a message quotes


class Hooks:
    """Runs one hook to its end; the caller limits the time. `on_cut_sleep()`: a sleep was cancelled before its end."""

    def __init__(
        self, runtime: RuntimeService, http: HttpGet, clock: Clock, on_cut_sleep: Callable[[], None] = lambda: None
    ) -> None:
        self._runtime, self._http, self._clock, self._on_cut_sleep = runtime, http, clock, on_cut_sleep

    async def run(self, pod: Pod, container: Json, container_id: str, hook: Json, ips: tuple[str, ...]) -> None:
        """Raises NodewrightError that names the hook, the container and the cause."""
        name = f'Container "{container["name"]}" in Pod "{pod.name}_{pod.namespace}({pod.uid})"'
        if hook.get("exec"):
            await self._exec(name, container_id, list(hook["exec"].get("command") or []))
        elif hook.get("httpGet"):
            await self._get(pod, name, container, hook["httpGet"], ips)
        elif hook.get("sleep"):
            await self._sleep(float(hook["sleep"].get("seconds", 0)))
        elif hook.get("tcpSocket"):
            raise Permanent("tcpSocket is not supported in lifecycle hooks", obj=name, action="Use exec or httpGet.")

    async def _sleep(self, seconds: float) -> None:
        try:
            await self._clock.sleep(seconds)
        except asyncio.CancelledError:
            self._on_cut_sleep()
            raise

    async def _exec(self, name: str, container_id: str, argv: list[str]) -> None:
        command = one_line(" ".join(argv), _MOST_COMMAND)
        what = f"Exec lifecycle hook ({command}) for {name} failed"
        try:
            done = await self._runtime.exec_sync(container_id, argv, 0)
        except CriError as error:
            if error.code == "RESOURCE_EXHAUSTED":
                return  # it has ended, and wrote so much that the runtime's answer was not taken
            raise Permanent(f"error: {one_line(error.message, _MOST_OUTPUT)}", obj=what) from error
        if done.exit_code != 0:
            output = one_line(done.head(_MOST_OUTPUT).decode(errors="replace"), _MOST_OUTPUT)
            raise Permanent(f"error: command '{command}' exited with {done.exit_code}, message: \"{output}\"", obj=what)

    async def _get(self, pod: Pod, name: str, container: Json, action: Json, ips: tuple[str, ...]) -> None:
        what = f"HTTP lifecycle hook ({one_line(action.get('path', ''), _MOST_COMMAND)}) for {name} failed"
        host = action.get("host") or (ips[0] if ips else "")
        if not host:
            raise Permanent("error: the pod has no address", obj=what)
        port = _port(container, action.get("port"))
        path = action.get("path") or "/"
        scheme = str(action.get("scheme") or "HTTP").lower()
        host = f"[{host}]" if ":" in host else host
        url = f"{scheme}://{host}:{port}{path if path.startswith('/') else '/' + path}"
        headers = {"User-Agent": f"kube-lifecycle/{KUBERNETES_MINOR}", "Accept": "*/*"}
        headers |= {one["name"]: one.get("value", "") for one in action.get("httpHeaders") or []}
        try:
            with of_namespace(pod.namespace):
                await self._http.get(url, headers, pod=pod.uid)
        except NodewrightError as error:
            raise Permanent(f"error: {one_line(error.message, _MOST_OUTPUT)}", obj=what) from error


def _port(container: Json, port: object) -> int:
    text = str(port)
    if is_number(text):
        return int(text)
    for one in container.get("ports") or []:
        if one.get("name") == text:
            return int(one["containerPort"])
    raise Permanent(f"no port named {text!r}", obj=f"container {container['name']}")
