"""Plays one fault on a node with running pods and traffic, and compares what happened with what is promised."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from nodelib.kube.client import ApiUnreachable
from tests.builders.pods import manifest, sleeper
from tests.cluster.faults.promises import Fault, Result, Site, report
from tests.cluster.world import Object, condition, containers_of, holds, is_ready, load, status_of

_PROBES: dict[str, Any] = {
    "tcp": {"tcpSocket": {"port": 8080}},
    "http": {"httpGet": {"port": 8080}},
    "exec": {"exec": {"command": ["true"]}},
}


def steady(kind: str, node: str) -> Object:
    """A pod that serves, and is probed for readiness and liveness every second."""
    probe = {**_PROBES[kind], "periodSeconds": 1, "failureThreshold": 3, "timeoutSeconds": 5}
    box = sleeper(readinessProbe=probe, livenessProbe=probe)
    box["command"] = ["sh", "-c", "mkdir -p /www; echo ok >/www/index.html; exec httpd -f -p 8080 -h /www"]
    return manifest(f"steady-{kind}", box, nodeName=node, labels={"app": "steady"})


def _service(name: str) -> Object:
    """A Service of the steady pods."""
    spec = {"selector": {"app": "steady"}, "ports": [{"port": 80, "targetPort": 8080}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def some(faults: Sequence[Fault], seed: int, share: int) -> Sequence[Fault]:
    """One in `share` of them, others for each seed; with NODEWRIGHT_SOAK all."""
    return faults if os.environ.get("NODEWRIGHT_SOAK") else faults[seed % share :: share]


async def played(site: Site, faults: Sequence[Fault]) -> None:
    """Play faults one after the other on one set of pods; fails with all promises that were broken."""
    stage, results = Stage(site), list[Result]()
    async with stage.raised():
        for fault in faults:
            result = await stage.play(fault)
            results.append(result)
            text = (
                f"a pod meanwhile {result.pod_ready} s, well after {result.well_after} s, {len(result.broken)} broken"
            )
            site.world.stats.append((f"{fault.edge}: {fault.name}", text))
    report(results)
    broken = [f"--- {one.edge}: {one.name}\n" + "\n".join(one.broken) for one in results if one.broken]
    assert not broken, "\n".join(broken)


class Stage:
    """Steady pods on a node, for any number of faults; raise(), then play(), then take_down()."""

    def __init__(self, site: Site) -> None:
        self._site, self._world = site, site.world
        self._wrong: list[tuple[str, str]] = []
        self._turn = 0

    @contextlib.asynccontextmanager
    async def raised(self) -> AsyncIterator[None]:
        await asyncio.gather(*(self._world.run(steady(kind, self._site.node)) for kind in _PROBES))
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            for one in await self._world.pods():
                await self._world.delete(one["metadata"]["name"], grace=0)

    async def _watch(self) -> None:
        path = self._world.path("pods")
        while True:
            with contextlib.suppress(ApiUnreachable):  # a watch without events is ended after minutes
                async for event in self._world.api.stream(path, {"labelSelector": "app=steady"}):
                    self._see(event["type"], event["object"])

    def _see(self, kind: str, obj: Object) -> None:
        name = obj["metadata"]["name"]
        if kind == "DELETED":
            self._wrong.append((name, "was deleted"))
        elif status_of(obj).get("restartCount"):
            self._wrong.append((name, f"was restarted: {status_of(obj).get('lastState')}"))
        elif status_of(obj) and not is_ready(obj):
            self._wrong.append((name, f"was not Ready: {condition(obj, 'Ready').get('message')}"))

    async def play(self, fault: Fault) -> Result:
        """One fault from its begin until all is well again."""
        result, world, node = Result(fault.name, fault.edge), self._world, self._site.node
        self._turn += 1
        new, old = f"new-{self._turn}", f"old-{self._turn}"
        await world.run(manifest(old, nodeName=node))
        pods = await world.pods("app=steady")
        before, daemon = containers_of(pods), world.pid(node, fault.program)
        log_from = self._log(fault).stat().st_size
        self._wrong.clear()
        urls = [f"http://{one['status']['podIP']}:8080/index.html" for one in pods]
        with load(urls, net=world.cluster.namespace(node, "net")) as asked:
            async with fault.inject():
                until = time.monotonic() + fault.lasts
                created = time.monotonic()
                await world.create(manifest(new, nodeName=node))
                await world.create(_service(new))
                await world.delete(old)
                if fault.starts_pods:
                    await self._promise(result, world.ready(new, 60), "a new pod starts meanwhile")
                    result.pod_ready = round(time.monotonic() - created, 2)
                await asyncio.sleep(max(0.0, until - time.monotonic()))
            began = time.monotonic()
            await self._promise(result, world.ready(new, fault.well_within), "a new pod starts after it")
            await self._promise(result, world.gone(old, seconds=fault.well_within), "a deleted pod is gone after it")
            await self._promise(result, self._heartbeat(fault.well_within), "the heartbeat is taken again")
            await self._promise(result, self._answers(new, fault.well_within), "a new Service answers after it")
            result.well_after = round(time.monotonic() - began, 2)
            traffic = asked.stop()
        await world.delete(new)
        result.requests = traffic["asked"]
        result.broken += [f"a request failed: {one}" for one in traffic["failed"][:3]]
        result.broken += [f"{name} {what}" for name, what in self._wrong if self._counts(fault, what)][:5]
        if containers_of(await world.pods("app=steady")) != before:
            result.broken.append("a running container is another one now")
        if not fault.restarts_program and world.pid(node, fault.program) != daemon:
            result.broken.append(f"the {fault.program} ended")
        self._read_log(fault, result, log_from)
        return result

    async def _heartbeat(self, seconds: float) -> None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{self._site.node}"
        first = (await self._world.api.get(path))["spec"]["renewTime"]

        async def renewed() -> bool:
            return bool((await self._world.api.get(path))["spec"]["renewTime"] != first)

        await holds(renewed, "the Lease is renewed", seconds)

    async def _answers(self, name: str, seconds: float) -> None:
        address = (await self._world.get(name, "services"))["spec"]["clusterIP"]

        async def answered() -> bool:
            argv = ("curl", "-s", "-m", "2", f"http://{address}/index.html")
            return (await self._world.in_node(self._site.node, *argv, check=False)).text.strip() == "ok"

        await holds(answered, f"the Service at {address} answers", seconds)
        await self._world.delete(name, "services")

    def _log(self, fault: Fault) -> Path:
        return Path(self._world.cluster.log_dir(self._site.node), f"{fault.program}.log")

    @staticmethod
    def _counts(fault: Fault, what: str) -> bool:
        return fault.keeps_ready or "not Ready" not in what

    @staticmethod
    async def _promise(result: Result, waiting: Any, what: str) -> None:
        try:
            await waiting
        except AssertionError as error:
            result.broken.append(f"{what}: {str(error)[:1500]}")

    def _read_log(self, fault: Fault, result: Result, start: int) -> None:
        with self._log(fault).open("rb") as file:
            file.seek(start)
            text = file.read().decode(errors="replace")
        if not fault.may_log_errors and (found := re.search(r"Traceback[^\n]*\n(?:[^\n]*\n){0,30}", text)):
            result.broken.append(f"an error that was not expected: {found[0][-1500:]}")
        if (longest := max((len(line) for line in text.splitlines()), default=0)) > 16384:
            result.broken.append(f"a log line of {longest} characters")
        if fault.said and not re.search(fault.said, text):
            result.broken.append(f"nothing is said: no {fault.said!r} in the log; its end:\n{text[-1200:]}")
