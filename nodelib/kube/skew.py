"""Checks, when a daemon starts, whether this release is compatible with its API server."""

from __future__ import annotations

import logging

from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.kube.client import KubeClient
from nodelib.version import KUBERNETES_VERSION, skew

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE, _TRIES = 0.5, 60.0, 12  # seconds; five minutes in all


async def version_skew(client: KubeClient, clock: Clock) -> str:
    """Why upstream's version skew policy does not allow this combination, "" if it does. Logs the reason.

    Never raises NodewrightError. In a new cluster /version is forbidden until the roles exist, so it retries.
    """
    pause, problem = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), ""
    for _ in range(_TRIES):
        try:
            server = str((await client.get("/version")).get("gitVersion", ""))
        except NodewrightError as error:
            problem = str(error)
            await clock.sleep(pause.next(error.retry_after))
            continue
        found = skew(KUBERNETES_VERSION, server)
        if found:
            log.warning("version skew: %s", found)
        return found
    log.info("the API server's version cannot be read: %s", problem)
    return ""
