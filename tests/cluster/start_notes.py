"""Pods that record each start of their container on the node, and whether two starts overlapped."""

from __future__ import annotations

from typing import Any

from tests.builders.pods import manifest, sleeper
from tests.cluster.world import Object, World

_STARTS = "/run/nodewright-soak"
# A start records itself and leaves a mark while it runs, so that a second start at the same time finds the mark.
_BODY = (
    "trap 'rm -rf /starts/{0}.runs; exit 0' TERM\n"
    "mkdir /starts/{0}.runs || echo twice >> /starts/{0}.twice\n"
    "echo start >> /starts/{0}\n"
)


def noted(name: str, node: str, script: str, **more: Any) -> Object:
    """A pod whose container records its starts; {0} in the script is its name. A script that ends removes
    /starts/{0}.runs."""
    box = sleeper(volumeMounts=[{"name": "starts", "mountPath": "/starts"}], **more)
    box["command"] = ["sh", "-c", _BODY.format(name) + script.format(name)]
    volumes = [{"name": "starts", "hostPath": {"path": _STARTS, "type": "DirectoryOrCreate"}}]
    return manifest(name, box, nodeName=node, volumes=volumes, labels={"app": "soak"})


async def started_more_than_once(world: World, node: str, *patterns: str) -> dict[str, int]:
    """Pods that match the shell patterns and did not start exactly once: name -> number of starts."""
    script = f"cd {_STARTS} && grep -c . {' '.join(patterns)} /dev/null"
    lines = (await world.in_node(node, "sh", "-c", script, check=False)).text.split()
    counted = {name: int(count) for name, _, count in (line.partition(":") for line in lines) if "." not in name}
    return {name: count for name, count in counted.items() if count != 1 and name != "/dev/null"}


async def started_unended(world: World, node: str) -> list[str]:
    """Pods whose container was started while an earlier start of it still ran, or had been killed in the middle."""
    names = (await world.in_node(node, "sh", "-c", f"cd {_STARTS} && ls")).text.split()
    return [name.removesuffix(".twice") for name in names if name.endswith(".twice")]


async def remove_notes(world: World, node: str) -> None:
    await world.in_node(node, "rm", "-rf", _STARTS)
