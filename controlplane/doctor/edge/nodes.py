"""The Nodes of a cluster, from its API server."""

from __future__ import annotations

from typing import Any

from nodelib.errors import NodewrightError
from nodelib.kube import listing
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient

_SECONDS = 4.0


async def listed(kubeconfig: str) -> tuple[list[dict[str, Any]] | None, str]:
    """The Nodes; None and the reason when the API server does not answer."""
    try:
        async with KubeClient(load_kubeconfig(kubeconfig), user_agent="nodewright-doctor", timeout=_SECONDS) as client:
            return list((await listing.listed(client, "/api/v1/nodes")).items), ""
    except NodewrightError as error:
        return None, error.message
