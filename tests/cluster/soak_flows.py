"""Traffic during a soak: long-lived TCP flows and new connections, pod to pod and through a Service, on all nodes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.builders.pods import manifest, sleeper, web
from tests.builders.services import WEB_PORT, service
from tests.cluster.soak_evidence import silent_pods_reported
from tests.cluster.world import Load, World, load

_FLOW = Path(__file__).with_name("tcp_flow.py")
_APP = {"app": "served"}
_PORT = 8080


@dataclass
class Traffic:
    """`wrong`: flows that broke and requests that failed; `text`: the counts. Both are complete after the block."""

    wrong: list[str] = field(default_factory=list)
    text: str = ""


@contextlib.asynccontextmanager
async def traffic(world: World, nodes: Sequence[str]) -> AsyncIterator[Traffic]:
    """A server and a client on each node; every client has a flow and new connections to each server and a Service."""
    made = await world.create(service("served", selector=_APP, ports=[WEB_PORT]))
    for node in nodes:
        await world.create(manifest(f"served-{node}", web(), labels=_APP, nodeName=node))
        await world.create(manifest(f"asks-{node}", sleeper(), nodeName=node))
    servers = [await world.ready(f"served-{node}") for node in nodes]
    clients = [await world.ready(f"asks-{node}") for node in nodes]
    places = [(one["status"]["podIP"], _PORT) for one in servers] + [(made["spec"]["clusterIP"], WEB_PORT["port"])]
    found, flows, loads = Traffic(), list[subprocess.Popen[str]](), list[Load]()
    with contextlib.ExitStack() as stack:
        for client in clients:
            net = await world.pod_net(client)
            flows += [stack.enter_context(_flow(net, address, port)) for address, port in places]
            urls = [f"http://{address}:{port}/hostname" for address, port in places]
            loads.append(stack.enter_context(load(urls, net=net, pause=0.2)))
        async with silent_pods_reported(world, servers, _PORT, found.wrong):
            yield found
        ends: list[dict[str, Any]] = [json.loads(one.communicate("", timeout=60)[0]) for one in flows]
        asked = [one.stop() for one in loads]
    found.wrong += [f"a flow broke after {one['asked']} requests: {one['broken']}" for one in ends if one["broken"]]
    found.wrong += [failed for one in asked for failed in one["failed"]]
    slowest = max(one["slowest"] for one in (*ends, *asked))
    held, made_new = sum(one["asked"] for one in ends), sum(one["asked"] for one in asked)
    counts = f"{len(ends)} flows with {held} requests, {made_new} new connections"
    found.text = f"{counts}, slowest answer {slowest:.2f} s, {len(found.wrong)} failed"


@contextlib.contextmanager
def _flow(net: str, address: str, port: int) -> Any:
    argv = ["nsenter", f"--net={net}", sys.executable, "-I", "-S", str(_FLOW), address, str(port)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "READY\n"
        yield process
    finally:
        process.kill()
        process.wait()
