"""Whether this release fits the API server that a daemon has found: said once, when it starts."""

from __future__ import annotations

import logging

from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.kube.client import KubeClient
from nodelib.version import KUBERNETES_VERSION, skew

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE, _TRIES = 0.5, 60.0, 12  # seconds; for five minutes in all


async def version_skew(client: KubeClient, clock: Clock) -> str:
    """What upstream's policy has against it, "" for nothing; in the log already. Never raises NodewrightError.

    In a new cluster nobody may read /version until its roles are made, a moment after it is ready: it is asked again.
    """
    pause, said = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), ""
    for _ in range(_TRIES):
        try:
            server = str((await client.get("/version")).get("gitVersion", ""))
        except NodewrightError as error:
            said = str(error)
            await clock.sleep(pause.next())
            continue
        found = skew(KUBERNETES_VERSION, server)
        if found:
            log.warning("version skew: %s", found)
        return found
    log.info("the API server does not say its version: %s", said)
    return ""
