"""Pods that are there all the time, come and go, die and are resized while daemons are killed; and what was seen."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from nodelib.errors import NodewrightError
from tests.cluster.restart_report import restart_report
from tests.cluster.start_notes import noted
from tests.cluster.world import Object, World, condition, is_ready, status_of

_STEADY, _LANES = 6, 3
_PATIENCE = 300  # seconds for a step of a pod's life, while daemons die


@dataclass
class Seen:
    """What no pod should have shown, and how long the agents took to be there again (seconds)."""

    wrong: list[str] = field(default_factory=list)
    resync: list[float] = field(default_factory=list)
    churned: int = 0
    deaths: int = 0
    resizes: int = 0


@dataclass
class Churn:
    """The pods of one node. All that is random comes from `dice`; `rest` is the longest pause of a pod, in seconds."""

    world: World
    node: str
    seen: Seen
    dice: random.Random
    rest: float = 0.5

    @property
    def steady(self) -> list[str]:
        """The names of the pods that nothing may happen to."""
        return [f"steady-{self.node}-{number}" for number in range(_STEADY)]

    async def begin(self) -> None:
        """Make the steady pods, and wait until they are ready."""
        for number, name in enumerate(self.steady):
            await self.world.create(_steady(name, self.node, number))
        for name in self.steady:
            await self.world.ready(name)

    @contextlib.asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        """During the block, pods come and go. What goes wrong, and an error of this itself, is in `seen`."""
        stop = asyncio.Event()
        watching = asyncio.create_task(self._watch())
        tasks = [
            *(asyncio.create_task(self._come_and_go(stop, lane)) for lane in range(_LANES)),
            asyncio.create_task(self._dying(stop)),
            asyncio.create_task(self._resizing(stop)),
        ]
        try:
            yield
        finally:
            stop.set()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            watching.cancel()
            self.seen.wrong += [repr(end) for end in ends if isinstance(end, BaseException)]

    async def _watch(self) -> None:
        """No steady pod may lose its readiness, restart, or vanish."""
        names = set(self.steady)
        async for event in self.world.api.stream(self.world.path("pods"), {"labelSelector": "app=soak"}):
            obj = event["object"]
            name = obj["metadata"]["name"]
            if name not in names:
                continue
            if event["type"] == "DELETED" or not is_ready(obj) or status_of(obj).get("restartCount"):
                why = f"{event['type']} {condition(obj, 'Ready').get('message')}"
                self.seen.wrong.append(f"{name}: {why}\n{await restart_report(self.world, self.node, obj)}")

    async def _come_and_go(self, stop: asyncio.Event, lane: int) -> None:
        turn = 0
        while not stop.is_set():
            name = f"churn-{self.node}-{lane}-{turn}"
            turn += 1
            await self.world.create(noted(name, self.node, "sleep 3600 & wait"))
            ready = await self.world.ready(name, _PATIENCE)
            if status_of(ready)["restartCount"]:
                report = await restart_report(self.world, self.node, ready)
                self.seen.wrong.append(f"{name} was restarted\n{report}")
            await asyncio.sleep(self.dice.uniform(0, self.rest))
            await self.world.delete(name)
            await self.world.gone(name, seconds=_PATIENCE)
            self.seen.churned += 1

    async def _dying(self, stop: asyncio.Event) -> None:
        """A container that ends by itself: each end makes exactly one more start."""
        turn = 0
        while not stop.is_set():
            name = f"dying-{self.node}-{turn}"
            turn += 1
            await self.world.create(noted(name, self.node, "sleep 1; rm -rf /starts/{0}.runs; exit 1"))
            twice = await self.world.until(name, _restarted_twice, "restarted twice", _PATIENCE)
            last = status_of(twice).get("lastState", {}).get("terminated", {})
            if last.get("exitCode") != 1:
                report = await restart_report(self.world, self.node, twice)
                self.seen.wrong.append(f"{name} ended otherwise than by itself\n{report}")
            await self.world.delete(name)
            await self.world.gone(name, seconds=_PATIENCE)
            self.seen.deaths += 1
            await asyncio.sleep(self.dice.uniform(0, self.rest))

    async def _resizing(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            name, limit = self.dice.choice(self.steady), f"{self.dice.randrange(100, 200)}m"
            body = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": limit}}}]}}
            with contextlib.suppress(NodewrightError):
                await self.world.api.patch(f"{self.world.path('pods', name)}/resize", body, kind="strategic")
                self.seen.resizes += 1
            await asyncio.sleep(1)


def _steady(name: str, node: str, number: int) -> Object:
    kinds: list[Object] = [{"exec": {"command": ["true"]}}, {"tcpSocket": {"port": 8080}}, {"httpGet": {"port": 8080}}]
    probe = {**kinds[number % 3], "periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 5}
    needs = {"requests": {"cpu": "10m"}, "limits": {"cpu": "100m"}}
    serve = "mkdir -p /www; echo ok > /www/index.html; httpd -f -p 8080 -h /www & wait"
    return noted(name, node, serve, readinessProbe=probe, livenessProbe=probe, resources=needs)


def _restarted_twice(obj: Object) -> bool:
    return bool(status_of(obj).get("restartCount", 0) >= 2)
