"""How changes of ConfigMaps and Secrets are found, once a pod uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from agent.common.model.binding import config
from agent.common.model.durations import seconds

WATCH, CACHE, GET = "Watch", "Cache", "Get"
DEFAULT_TTL = 60.0  # seconds that CACHE keeps what the Node's annotation says nothing of


@dataclass(frozen=True, slots=True)
class ChangeDetection:
    """`period`: seconds after which a pod's volumes are refreshed anyhow, unless changes are watched."""

    strategy: Annotated[str, config("configMapAndSecretChangeDetectionStrategy")] = WATCH
    period: Annotated[float, config("syncFrequency", convert=seconds)] = 60.0
