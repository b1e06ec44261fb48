"""Whether this release fits the API server that a daemon has found: said once, when it starts."""

from __future__ import annotations

import logging

from nodelib.errors import NodewrightError
from nodelib.kube.client import KubeClient
from nodelib.version import KUBERNETES_VERSION, skew

log = logging.getLogger(__name__)


async def version_skew(client: KubeClient) -> str:
    """What upstream's policy has against it, "" for nothing; in the log already. Never raises NodewrightError."""
    try:
        server = str((await client.get("/version")).get("gitVersion", ""))
    except NodewrightError as error:
        log.info("the API server does not say its version: %s", error)
        return ""
    found = skew(KUBERNETES_VERSION, server)
    if found:
        log.warning("version skew: %s", found)
    return found
