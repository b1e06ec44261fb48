"""Installs the CRD of ClusterNetworkPolicy where nobody else has."""

from __future__ import annotations

from controlplane.cluster.plan import manifests, policy_api
from controlplane.cluster.work import workloads
from nodelib.clock import Clock
from nodelib.json_values import Json, object_or_empty
from nodelib.kube.client import ApiError, ApiUnreachable, KubeClient

_PATIENCE = 10.0  # seconds


async def ensure(client: KubeClient, clock: Clock) -> None:
    """Ours, unless the cluster has another one: the user's may have other versions, and policies in them."""
    made = policy_api.crd()
    found = await _read(client, manifests.path_of(made), clock)
    labels = object_or_empty(object_or_empty(found.get("metadata")).get("labels"))
    if not found or policy_api.OWNER.items() <= labels.items():
        await workloads.apply(client, [made], clock)


async def _read(client: KubeClient, path: str, clock: Clock) -> Json:
    """The object, {} if there is none. What a server that just started refuses is tried again."""
    deadline = clock.monotonic() + _PATIENCE
    while True:
        try:
            return await client.get(path)
        except (ApiError, ApiUnreachable) as error:
            if isinstance(error, ApiError) and error.is_not_found:
                return {}
            if clock.monotonic() > deadline:
                raise
        await clock.sleep(0.1)
