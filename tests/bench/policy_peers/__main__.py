"""`python -m tests.bench.policy_peers` as root: measures all makers in turn and prints a table.

The first run builds the peers from their Go modules (minutes). kube-router needs ipset (`apt-get install ipset`).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import aiohttp

from cli.bench.services.objects import batches
from controlplane.cluster.edge import lab as edge
from controlplane.cluster.edge.lab import Lab
from nodelib.clock import SystemClock
from nodelib.errors import Invalid, NodewrightError
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from tests.bench.policy_peers import measure, objects, table
from tests.bench.policy_peers.makers import MAKERS
from tests.bench.policy_peers.measure import Effort, Found
from tests.bench.policy_peers.subject import Subject
from tests.bench.policy_peers.world import FLOW_PEER
from tests.netns.api_server import built

_NODE: Json = {
    "metadata": {"name": objects.NODE},
    "spec": {"podCIDR": "10.244.0.0/16", "podCIDRs": ["10.244.0.0/16"]},
    "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]},
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.policy_peers", description=__doc__)
    parser.add_argument("--makers", default=",".join(MAKERS), help="some of these, the first is compared with")
    parser.add_argument("--policies", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=250)
    parser.add_argument("--changes", type=int, default=50, help="of each kind")
    parser.add_argument("--budget", type=float, default=150, help="seconds after which no more changes are made")
    parser.add_argument(
        "--sizes", default="0,10,1000", help="policies on the pod that packets are sent to; empty: none"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of packets to that pod")
    return parser.parse_args()


class Bench:
    def __init__(self, lab: Lab, makers: Sequence[str], effort: Effort) -> None:
        self._lab, self._effort = lab, effort
        self._binaries = {name: built(MAKERS[name].binary) if MAKERS[name].binary else Path() for name in makers}
        self.found = {name: Found() for name in makers}
        self.failed: list[str] = []
        self._numbers = itertools.count(1)  # the kernel takes its time to remove a node

    async def _subject(self, name: str, addresses: Sequence[str]) -> Subject:
        return await Subject.make(self._lab, MAKERS[name], self._binaries[name], next(self._numbers), addresses)

    async def changes(self) -> None:
        """Start each maker with many policies, and change some."""
        pods = objects.pod_addresses(self._effort.pods)
        await self._serve(objects.spread(self._effort.policies, self._effort.pods))
        for name in self.found:
            subject = await self._subject(name, pods)
            try:
                await self._alone(subject, self.found[name], pods)
            except NodewrightError as error:
                self._fail(f"{name}: {error}")
            finally:
                await subject.close()
        await self._lab.stop_servers()

    async def _alone(self, subject: Subject, found: Found, pods: Sequence[str]) -> None:
        clock, name = SystemClock(), subject.maker.name
        _say(f"{name}: {self._effort.policies} policies, {self._effort.pods} pods")
        found.values["enforced"] = await measure.enforced(subject, self._effort, pods)
        await subject.settle(measure.SETTLED)
        memory = subject.resident()
        found.values |= {"RSS": memory["now"], "RSS highest": memory["most"]}
        if (peak := subject.group_peak()) is not None:
            found.values["group"] = peak
        async with KubeClient(self._lab.access, user_agent="bench") as client:
            _say(f"{name}: enforced after {found.values['enforced']:.2f} s; policies are changed")
            await measure.changed_policies(subject, client, self._effort, clock, found)
            _say(f"{name}: labels are changed")
            await measure.changed_labels(subject, client, self._effort, clock, found)
        await subject.stop()
        await clock.sleep(measure.SETTLED)
        if (kernel := subject.kernel()) is not None:
            found.values["kernel"] = kernel

    async def paths(self, sizes: Iterable[int]) -> None:
        """What policies cost connections: with each number of them, all makers in turn."""
        for size in sizes:
            await self._serve(objects.on_one(size))
            subjects: list[Subject] = []
            try:
                for name in self.found:
                    _say(f"{name}: {size} policies on one pod")
                    subject = await self._subject(name, [objects.address(0)])
                    subjects.append(subject)
                    await measure.enforced_on_one(subject, size)
                    await self._flow_server(subject)
                for number in range(self._effort.rounds):
                    # Who is first changes: what else runs on the machine shall not hit the same one each time.
                    for subject in random.Random(number).sample(subjects, len(subjects)):
                        await measure.path(subject, str(size), self.found[subject.maker.name])
            except NodewrightError as error:
                self._fail(f"{size} policies on one pod: {error}")
            finally:
                for subject in subjects:
                    await subject.close()
            await self._lab.stop_servers()

    async def _flow_server(self, subject: Subject) -> None:
        world = subject.world
        line = world.servers.inside(sys.executable, "-IS", FLOW_PEER, "serve")
        process = await self._lab.spawn(f"{world.name}-flows", line, pipes=True)
        world.servers.processes.append(process)
        assert process.handle.stdout is not None
        await process.handle.stdout.readline()

    async def _serve(self, stored: objects.Stored) -> None:
        url = await self._lab.start_etcd(Path(tempfile.mkdtemp(dir=self._lab.folder)))
        async with aiohttp.ClientSession() as session:
            for body in batches(stored):
                async with session.post(f"{url}/v3/kv/txn", json=body) as answer:
                    if answer.status != 200:
                        raise Invalid((await answer.text())[:500], obj="etcd", step="write objects")
        await self._lab.start_api_server()
        async with KubeClient(self._lab.access, user_agent="bench") as client:
            made = await client.post("/api/v1/nodes", {**_NODE, "status": {}})
            await client.put(f"/api/v1/nodes/{objects.NODE}/status", {**made, "status": _NODE["status"]})

    def _fail(self, message: str) -> None:
        _say(message)
        self.failed.append(message)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def _run(given: argparse.Namespace, binaries: Path) -> int:
    this = asyncio.current_task()
    assert this is not None
    # Cgroups would stay behind; everything else ends with this process.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    lab = Lab(Path(tempfile.mkdtemp(prefix="nodewright-bench-")), binaries, SystemClock())
    effort = Effort(given.policies, given.pods, given.changes, given.budget, given.rounds)
    bench = Bench(lab, given.makers.split(","), effort)
    sizes = [int(one) for one in given.sizes.split(",") if one]
    try:
        await lab.prepare()
        if effort.changes:
            await bench.changes()
            _say(table.markdown(bench.found, []))  # the rest takes as long again
        await bench.paths(sizes)
    finally:
        await lab.close()
    print(table.markdown(bench.found, sizes))
    print(table.counts(bench.found))
    print(f"load at the end: {' '.join(f'{one:.1f}' for one in os.getloadavg())}")
    return 1 if bench.failed else 0


def main() -> int:
    given = _arguments()
    binaries = built("etcd").parent
    built("kube-apiserver")
    edge.enter()
    return asyncio.run(_run(given, binaries))


if __name__ == "__main__":
    sys.exit(main())
