"""What a node knows of a pod that does not answer, collected at that moment: a soak's cluster is gone later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from controlplane.machine.edge.namespaces import in_node
from nodelib.command import CommandError, run
from tests.cluster.world import World

Object = dict[str, Any]
_EVERY, _PATIENCE = 10.0, 20.0  # seconds between two looks; how long a pod may be silent
_LONGEST = 20_000  # characters of one command's output


@contextlib.asynccontextmanager
async def silent_pods_reported(
    world: World, pods: Sequence[Object], port: int, wrong: list[str]
) -> AsyncIterator[None]:
    """During the block each pod is asked from both nodes; of one that stays silent `wrong` gets evidence, once."""
    # Now, as containerd knows them: it may be what is wrong later.
    nets = {pod["metadata"]["name"]: await world.pod_net(pod) for pod in pods}
    watching = asyncio.create_task(_watch(world, pods, nets, port, wrong))
    try:
        yield
    finally:
        watching.cancel()
        (end,) = await asyncio.gather(watching, return_exceptions=True)
        if isinstance(end, Exception):
            wrong.append(f"nobody looked for silent pods to the end: {end!r}")


async def _watch(world: World, pods: Sequence[Object], nets: Mapping[str, str], port: int, wrong: list[str]) -> None:
    reported = set[str]()
    while True:
        await asyncio.sleep(_EVERY)
        for pod in pods:
            name, address = pod["metadata"]["name"], pod["status"]["podIP"]
            if name in reported or not await _silent(world, address, port):
                continue
            await asyncio.sleep(_PATIENCE)
            if who := await _silent(world, address, port):
                reported.add(name)
                evidence = await _evidence(world, pod, nets[name])
                wrong.append(f"{name} ({address}) does not answer {', '.join(who)}\n{evidence}")


async def _silent(world: World, address: str, port: int) -> list[str]:
    """The nodes that it does not answer."""
    found = []
    for node in world.cluster.nodes:
        argv = ("curl", "-s", "-m", "8", f"http://{address}:{port}/hostname")
        if not (await world.in_node(node.name, *argv, check=False)).stdout:
            found.append(node.name)
    return found


async def _evidence(world: World, pod: Object, net: str) -> str:
    """`net`: the pod's network namespace, as /proc/PID/ns/net of a process in it."""
    node, address = pod["spec"]["nodeName"], pod["status"]["podIP"]
    ctr = (world.cluster.tools["ctr"], "-a", "/run/containerd/containerd.sock", "-n", "k8s.io")
    on_node = (
        ("ip", "-d", "link", "show", "master", "nw0"),
        ("bridge", "fdb", "show", "br", "nw0"),
        ("ip", "neigh"),
        ("ip", "route", "get", address),
        (*ctr, "task", "ls"),
        (*ctr, "container", "ls"),
    )
    parts = [await _said(in_node(world.cluster.namespaces(node), argv)) for argv in on_node]
    parts += [
        await _said(["nsenter", f"--net={net}", *argv]) for argv in (("ip", "a"), ("ip", "route"), ("ss", "-tanpm"))
    ]
    process = Path(net).parents[1]
    for name in ("status", "wchan", "stack", "syscall", "cgroup"):
        try:
            text = (process / name).read_text()
        except OSError as error:
            text = str(error)
        parts.append(f"{process}/{name}\n{text}")
    parts.append(f"now: {await world.get(pod['metadata']['name'])}")
    parts += [_mentions(Path(world.cluster.log_dir(node), f"{one}.log"), pod) for one in ("agent", "containerd")]
    return "\n".join(parts)


async def _said(argv: Sequence[str]) -> str:
    """The command and what it said; also that it did not end in time."""
    try:
        done = await run(argv, check=False, timeout=30)
        said = done.text + done.stderr.decode(errors="replace")
    except CommandError as error:
        said = str(error)
    return f"$ {' '.join(argv)}\n{said[:_LONGEST]}"


def _mentions(log: Path, pod: Object) -> str:
    """The last lines of a log that name the pod, its address or its container."""
    box = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2][:12]
    words = (pod["metadata"]["name"], pod["metadata"]["uid"], pod["status"]["podIP"], box)
    lines = [line for line in log.read_text(errors="replace").splitlines() if any(word in line for word in words)]
    return f"{log.name}:\n" + "\n".join(lines[-60:])
