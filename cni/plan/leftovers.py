"""Which attachments belong to sandboxes that are gone. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cni.model import Attachment

GRACE = 300.0  # seconds; a runtime lists a sandbox only some time after its ADD


def dead(
    attachments: Iterable[Attachment], live: Collection[str], listed_at: float, grace: float = GRACE
) -> list[Attachment]:
    """Those whose container the runtime does not know, made well before the list (wall-clock seconds)."""
    return [item for item in attachments if item.key.container_id not in live and item.created < listed_at - grace]
