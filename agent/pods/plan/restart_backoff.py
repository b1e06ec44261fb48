"""What the back-off of a restart is kept by."""

from __future__ import annotations

import json

from agent.common.model.labels import container_hash
from nodelib.json_values import Json

SANDBOX = ""  # no container has this name


def backoff_key(container: Json) -> str:
    """The key of a container's back-off. A changed definition or a resize starts with no back-off."""
    resources = json.dumps(container.get("resources") or {}, sort_keys=True, default=str)
    return f"{container['name']}/{container_hash(container)}/{resources}"
