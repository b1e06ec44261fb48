"""What is measured of one proxy in one mode at one size. Every value is measured the same way for both makers.

Cold sync: the proxy's own sync_proxy_rules_duration_seconds of its first sync, and the seconds from its start
until that sync had ended. A change: from sending the PATCH of one EndpointSlice until a connection through the
Service reaches the new endpoint, so it holds the API server, the watch, the proxy and the kernel. The path of
packets: in turns for all makers, from namespaces whose proxy has ended while its rules remain, so that other load on
the machine affects all of them alike.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from cli.bench.report import percentile
from cli.bench.services import objects
from cli.bench.services.objects import PORT, PROBE_ADDRESS, Size
from cli.bench.services.subject import LAST, SYNC, Peer, Subject, start_peer
from controlplane.cluster.edge.lab import Lab
from nodelib.clock import Clock
from nodelib.errors import Invalid, Temporary
from nodelib.kube.client import KubeClient


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work goes into one value."""

    changes: int = 15
    rest: float = 1.3  # seconds between two changes: longer than upstream's minSyncPeriod
    churn_rate: int = 100
    churn_seconds: float = 60
    turns: int = 5  # of the path
    connects: int = 500  # a turn
    stream_seconds: float = 2
    cold_limit: float = 280.0  # seconds to wait for a first sync


class Measurement:
    """One subject over its life: `values` is filled by the steps, in the units of results.UNITS."""

    def __init__(
        self, lab: Lab, client: KubeClient, subject: Subject, size: Size, clock: Clock, effort: Effort, fresh: list[int]
    ) -> None:
        self.values: dict[str, float] = {}
        self.at_least: set[str] = set()  # names of values that are lower bounds
        self._lab, self._client, self._subject, self._size = lab, client, subject, size
        self._clock, self._effort = clock, effort
        self._random = random.Random(size.services)
        # Services not yet moved to the endpoint that answers, shared by all subjects: moving one twice changes nothing.
        self._fresh = fresh
        self._path: Peer | None = None
        self._answering = -1
        self._connects: list[float] = []
        self._speeds: list[float] = []

    async def cold(self) -> None:
        """The first sync. Raises Temporary when it takes too long, and keeps the limit as a lower bound."""
        await self._subject.start()
        try:
            seen = await self._subject.synced(self._effort.cold_limit)
        except Temporary:
            self.values["start to synced"] = self._effort.cold_limit
            self.at_least.add("start to synced")
            raise
        self.values["cold sync"] = seen[f"{SYNC}_sum"] / seen[f"{SYNC}_count"]
        self.values["start to synced"] = seen[LAST] - self._subject.started
        await self._clock.sleep(2)
        self.values["RSS"] = self._subject.cost().rss

    async def change(self, say: Callable[[str], None]) -> None:
        """Changes one at a time, each measured until the new endpoint answers."""
        peer = Peer(await start_peer(self._lab, self._subject.space, "client"))
        taken = []
        for turn in range(min(self._effort.changes, max(1, len(self._fresh)))):
            if turn % 10 == 0:
                say(f"{turn} of {self._effort.changes} changes")
            taken.append(await self._lag(peer))
            await self._clock.sleep(self._effort.rest)
        self.values["change p50"] = statistics.median(taken)
        self.values["change p99"] = percentile(taken, 0.99)

    async def churn(self, say: Callable[[str], None]) -> None:
        """Changes at a steady rate; one of them every second is measured for its lag."""
        peer = Peer(await start_peer(self._lab, self._subject.space, "client"))
        before, began = self._subject.cost().cpu, self._clock.monotonic()
        noise = asyncio.create_task(self._noise(), name="bench churn")
        lags: list[float] = []
        try:
            while (spent := self._clock.monotonic() - began) < self._effort.churn_seconds:
                if len(lags) % 10 == 0:
                    say(f"{self._effort.churn_rate} changes a second: {spent:.0f} of {self._effort.churn_seconds:g} s")
                lags.append(await self._lag(peer))
                await self._clock.sleep(1)
        finally:
            noise.cancel()
            [ended] = await asyncio.gather(noise, return_exceptions=True)
        if isinstance(ended, Exception):
            raise Temporary(str(ended) or repr(ended), obj="churn", step="send changes") from ended
        spent = self._clock.monotonic() - began
        self.values["churn CPU"] = 100 * (self._subject.cost().cpu - before) / spent
        self.values["churn lag p50"] = statistics.median(lags)
        self.values["churn lag max"] = max(lags)
        self.values["churn rate"] = self._sent / spent
        self.values["churn RSS"] = self._subject.cost().rss

    async def prepare_path(self) -> None:
        """Give one Service the endpoint that accepts a stream. After this the proxy is not needed any more."""
        self._path = Peer(await start_peer(self._lab, self._subject.space, "client"))
        self._answering = self._unmoved()
        await self._moved(self._path, self._answering, [PROBE_ADDRESS])

    async def path(self) -> None:
        """One turn: first packets through random Services, then the throughput of one connection."""
        if self._path is None:
            return
        size = self._size
        through = [self._random.randrange(size.services) for _ in range(self._effort.connects)]
        self._connects += await self._path.ask({"first": [[size.cluster_ip(index), PORT] for index in through]})
        stream = [size.cluster_ip(self._answering), PORT, self._effort.stream_seconds]
        self._speeds.append(await self._path.ask({"stream": stream}))
        self.values["first packet p50"] = 1e6 * statistics.median(self._connects)
        self.values["first packet p99"] = 1e6 * percentile(self._connects, 0.99)
        self.values["throughput"] = statistics.median(self._speeds) * 8 / 1e9

    def _unmoved(self) -> int:
        """A Service that was not moved before. Raises Invalid when there is none left."""
        if not self._fresh:
            raise Invalid(
                f"all {self._size.services} Services have been moved once",
                obj="--sizes",
                step="measure a change",
                action="Give a larger size, or fewer --steps or --modes.",
            )
        return self._fresh.pop()

    async def _lag(self, peer: Peer) -> float:
        index = self._unmoved()
        return await self._moved(peer, index, [*self._size.addresses(index)[:-1], PROBE_ADDRESS])

    async def _moved(self, peer: Peer, index: int, addresses: list[str], limit: float = 60) -> float:
        """Seconds until the new endpoint of the Service answers. Raises Temporary after `limit` seconds."""
        watched = asyncio.create_task(peer.ask({"watch": [self._size.cluster_ip(index), PORT, limit]}))
        began = self._clock.monotonic()
        await self._patch(index, addresses)
        seen = float(await watched)
        if not seen:
            raise Temporary(
                f"not reached within {limit:g} s",
                obj=f"Service {self._size.name(index)} under {self._subject.maker}",
                step="measure a change",
            )
        return seen - began

    async def _patch(self, index: int, addresses: list[str]) -> None:
        await self._client.patch(
            objects.slice_path(self._size, index), {"endpoints": objects.endpoints(addresses)}, "merge"
        )

    async def _noise(self) -> None:
        """Replace endpoints of random Services, at the rate of the effort, until cancelled."""
        self._sent = 0
        pending: set[asyncio.Task[None]] = set()
        began = self._clock.monotonic()
        while True:
            due = int((self._clock.monotonic() - began) * self._effort.churn_rate)
            while self._sent < due:
                index = self._random.choice(self._fresh[: len(self._fresh) // 2] or range(self._size.services))
                first, *rest = self._size.addresses(index)
                other = self._size.addresses(self._random.randrange(self._size.services))[0]
                task = asyncio.create_task(self._patch(index, [self._random.choice((first, other)), *rest]))
                pending.add(task)
                task.add_done_callback(pending.discard)
                self._sent += 1
            await asyncio.sleep(0.005)
