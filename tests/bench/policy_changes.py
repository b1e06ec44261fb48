"""How long changes take until the kernel has them: `unshare -n python -m tests.bench.policy_changes [POLICIES PODS]`.

The pods are all of this node, in namespaces of five, and the policies of each namespace select its pods, with peers in
others. It runs the daemon's enforcer with its audits in this process, changes a policy or a pod's labels 20 times a
second, one after the other, and prints percentiles of the time from the change to the kernel's acknowledgement.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Awaitable, Callable

from nodelib.clock import SystemClock
from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.nft.edge import NftTable
from nodelib.nft.generation import GenerationReader
from policy.enforcer import Enforcer
from policy.plan import layout, parse
from policy.plan.program import Planner
from tests.builders.policies import apps, block, namespaces, pod, policy
from tests.fakes.policies import Silent

CHANGES = int(os.environ.get("CHANGES", "300"))
_OF_NAMESPACE = 5
_PAUSE = 0.05


def pods(count: int) -> list[Json]:
    return [
        pod(f"p{n}", f"10.244.{n >> 8}.{n & 255}", f"fd00:244::{n + 1:x}", namespace=f"n{n // _OF_NAMESPACE}")
        for n in range(1, count + 1)
    ]


def one_policy(number: int, spaces: int, port: int = 80) -> Json:
    peers = [apps(f"p{number % 7}"), namespaces(team=f"t{number % 10}"), block(f"10.{number % 200}.0.0/16")]
    ports = [{"port": port}, {"port": 8000, "endPort": 8100}]
    return policy(f"q{number}", namespace=f"n{number % spaces}", ingress=[{"from": peers, "ports": ports}])


async def measured(count: int, of_pods: int) -> None:
    tables = {family: NftTable(family, layout.TABLE) for family in Family}
    planners = {family: Planner(family, "node1", report=True) for family in Family}
    enforcer = Enforcer(tables, planners, SystemClock(), Silent(), GenerationReader())
    spaces = of_pods // _OF_NAMESPACE
    for number in range(spaces + 1):
        enforcer.set_namespace(f"n{number}", {"team": f"t{number % 10}"})
    there = [parse.pod(one) for one in pods(of_pods)]
    for found in there:
        enforcer.set_pod(found.name, found)
    for number in range(count):
        made, _ = parse.policy(one_policy(number, spaces))
        enforcer.set_policy(made.name, made)
    enforcer.start()
    began = time.perf_counter()
    tasks = [asyncio.create_task(enforcer.runner.run()), asyncio.create_task(enforcer.run_audit())]
    await enforcer.first_sync.wait()
    print(f"{count} policies, {of_pods} pods: all written in {time.perf_counter() - began:.2f} s", flush=True)
    gc.freeze()

    async def change_policy(turn: int) -> None:
        made, _ = parse.policy(one_policy(turn * 37 % count, spaces, 1000 + turn))
        enforcer.set_policy(made.name, made)
        await enforcer.written(enforcer.hold(*_nobody))

    async def change_label(turn: int) -> None:
        found = there[turn * 13 % of_pods]
        labels = {"app": f"p{turn % 7}"}
        changed = parse.pod(
            pod(found.name.name, *map(str, found.addresses), namespace=found.name.namespace, labels=labels)
        )
        enforcer.set_pod(changed.name, changed)
        await enforcer.written(enforcer.hold(*_nobody))

    for name, change in (("a changed policy", change_policy), ("changed labels", change_label)):
        print(f"{name}: {await _timed(change)}", flush=True)
    for task in tasks:
        task.cancel()


_nobody = (parse.name_of({"metadata": {"namespace": "none", "name": "none"}}), "", ())


async def _timed(change: Callable[[int], Awaitable[None]]) -> str:
    times = []
    for turn in range(CHANGES):
        began = time.perf_counter()
        await change(turn)
        times.append(time.perf_counter() - began)
        await asyncio.sleep(_PAUSE)
    times.sort()
    shown = {name: times[int((len(times) - 1) * part)] for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
    return ", ".join(f"{name} {value * 1000:.0f} ms" for name, value in (*shown.items(), ("most", times[-1])))


if __name__ == "__main__":
    asyncio.run(measured(*map(int, sys.argv[1:] or ("1000", "250"))))
