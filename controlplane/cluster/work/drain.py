"""Empties a node: no new pods, and those that are there are evicted, as `kubectl drain` does."""

from __future__ import annotations

import asyncio

from controlplane.cluster.plan.drain import Drain, name_of, names, plan_drain
from controlplane.progress import Say
from nodelib.clock import Clock
from nodelib.errors import Invalid, Temporary
from nodelib.json_values import Json
from nodelib.kube.client import ApiError, KubeClient

_PAUSE = 0.3
_AT_ONCE = 20  # evictions


async def cordon(client: KubeClient, node: str, *, unschedulable: bool = True) -> None:
    """Keep new pods away from a node, or let them come again."""
    await client.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": unschedulable or None}})


async def pods_of(client: KubeClient, node: str) -> list[Json]:
    """All pods that are bound to a node."""
    found: list[Json] = (await client.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"}))["items"]
    return found


async def drain(client: KubeClient, clock: Clock, node: str, limit: float, say: Say, *, force: bool) -> None:
    """Evict the pods of a cordoned node and wait until they are gone.

    Raises Invalid for pods that nothing makes again, Temporary for those that are still there after `limit` seconds;
    with `force` neither.
    """
    deadline = clock.monotonic() + limit
    refused: dict[str, str] = {}
    before = 0
    while True:
        found = plan_drain(await pods_of(client, node))
        _check_alone(found, node, force=force)
        left = [*found.evict, *found.alone]
        if not left:
            say(f"{before} moved away" if before else "none had to go")
            return
        before = max(before, len(left))
        say(f"{len(left)} pods to go")
        if clock.monotonic() > deadline:
            if force:
                return
            raise _late(left, refused, node, limit)
        refused = await _evict_all(client, [pod for pod in left if "deletionTimestamp" not in pod["metadata"]])
        await clock.sleep(_PAUSE)


def _check_alone(found: Drain, node: str, *, force: bool) -> None:
    staying = [pod for pod in found.alone if "deletionTimestamp" not in pod["metadata"]]
    if staying and not force:
        raise Invalid(
            f"nothing would make these pods again elsewhere: {names(staying)}",
            obj=node,
            step="drain",
            action="Delete them, or give --force. Nothing was removed.",
        )


def _late(left: list[Json], refused: dict[str, str], node: str, limit: float) -> Temporary:
    why = next((f"; {name}: {text}" for name, text in refused.items()), "")
    return Temporary(
        f"after {limit:g} s it still has {names(left)}{why}",
        obj=node,
        step="drain",
        action="Give more time with --timeout, or --force to remove it with its pods. Nothing was removed.",
    )


async def _evict_all(client: KubeClient, pods: list[Json]) -> dict[str, str]:
    """Evict pods. Returns why, of each pod that may not go now (a PodDisruptionBudget)."""
    room = asyncio.Semaphore(_AT_ONCE)
    refused: dict[str, str] = {}

    async def evict(pod: Json) -> None:
        metadata = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/eviction"
        async with room:
            try:
                await client.post(path, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
            except ApiError as error:
                if error.code == 429:
                    refused[name_of(pod)] = error.message
                elif error.code != 404:
                    raise

    await asyncio.gather(*map(evict, pods))
    return refused


async def delete_left(client: KubeClient, node: str) -> int:
    """Delete at once whatever is still bound to a node that is gone. Returns how many pods there were."""
    left = await pods_of(client, node)
    for pod in left:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        try:
            await client.delete(path, {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.code != 404:
                raise
    return len(left)
