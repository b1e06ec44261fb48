"""Reads policies, pods and namespaces from the API server of a cluster, of `up` or any other."""

from __future__ import annotations

import asyncio

from cli.policies.objects import Objects
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.kube.errors import ApiError, NotServed
from nodelib.kube.listing import Listed, listed
from policy.watches.cluster_policies import POLICIES

_PATHS = ("/api/v1/pods", "/api/v1/namespaces", "/apis/networking.k8s.io/v1/networkpolicies")


async def objects(kubeconfig: str) -> Objects:
    """Raises what the client raises."""
    async with KubeClient(load_kubeconfig(kubeconfig), user_agent="nodewright-policy", timeout=10) as client:
        pods, namespaces, policies = await asyncio.gather(*(listed(client, path) for path in _PATHS))
        cluster, unread = await _cluster_policies(client)
    return await asyncio.to_thread(Objects, pods, namespaces, policies, cluster, unread)


async def _cluster_policies(client: KubeClient) -> tuple[Listed | None, str]:
    """ClusterNetworkPolicies, None without their CRD, or why they could not be read."""
    try:
        return await listed(client, POLICIES), ""
    except NotServed:
        return None, ""
    except ApiError as error:
        return None, "" if error.code == 404 else error.message
