"""Takes add-ons out of a living cluster, and says which ones it has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from controlplane.cluster.advice import kubectl
from controlplane.cluster.edge import state
from controlplane.cluster.model import Cluster
from controlplane.cluster.plan import addons, manifests
from controlplane.cluster.plan.readiness import pod_facts, pods_wait_for
from controlplane.machine.edge.locks import directory_lock
from controlplane.progress import Progress
from controlplane.waiting import until
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.kube import shapes
from nodelib.kube.client import ApiError, KubeClient


@dataclass(frozen=True, slots=True)
class AddonState:
    """An add-on; `waits_for` says why it is not ready, "" if it is, or if the cluster does not have it."""

    name: str
    about: str
    added: bool
    waits_for: str = ""


async def read(cluster: Cluster, client: KubeClient) -> list[AddonState]:
    """Every add-on that there is, in the order of their names. An API server that does not answer is no failure."""
    found = []
    for name, addon in sorted(addons.TABLE.items()):
        added = name in cluster.options.addon_names
        found.append(AddonState(name, addon.about, added, await _waits_for(client, addon) if added else ""))
    return found


async def _waits_for(client: KubeClient, addon: addons.Addon) -> str:
    try:
        path = f"/api/v1/namespaces/{addon.namespace}/pods"
        listed = await client.get(path, {"labelSelector": addon.selector})
    except NodewrightError as error:
        return error.message
    return pods_wait_for([pod_facts(item) for item in shapes.objects(path, listed["items"])], 1)


async def remove(cluster: Cluster, name: str, client: KubeClient, progress: Progress, clock: Clock) -> bool:
    """Delete everything of an add-on. False if the cluster did not have it."""
    addon = addons.TABLE[name]
    with directory_lock(cluster.dir, make=False):
        known = state.load(cluster.name) or cluster
        with progress.step(f"addon {name}") as say:
            count = 0
            for obj in reversed(addon.objects()):
                count += await _delete(client, manifests.path_of(obj))
            await _gone(cluster, client, addon, name, clock)
            say(f"{count} objects deleted" if count else "nothing of it was there")
        left = ",".join(one for one in known.options.addon_names if one != name)
        had = name in known.options.addon_names
        if had:
            state.save(replace(known, options=replace(known.options, addons=left)))
    return had or count > 0


async def _delete(client: KubeClient, path: str) -> int:
    try:
        await client.delete(path, {"propagationPolicy": "Background"})
    except ApiError as error:
        if error.code != 404:
            raise
        return 0
    return 1


async def _gone(cluster: Cluster, client: KubeClient, addon: addons.Addon, name: str, clock: Clock) -> None:
    async def waits_for() -> str:
        path = f"/api/v1/namespaces/{addon.namespace}/pods"
        left = (await client.get(path, {"labelSelector": addon.selector}))["items"]
        return f"{len(left)} pods are still there" if left else ""

    shown = kubectl(cluster.name, "get", "pods", namespace=addon.namespace)
    await until(
        waits_for,
        clock,
        60,
        obj=f"addon {name}",
        step="remove it",
        action=f"{shown} shows them; run the command again then.",
    )
