"""Finds attachments whose sandboxes are gone. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cni.model import Attachment

GRACE = 300.0  # seconds: a runtime lists a sandbox only some time after its ADD


def orphaned(
    attachments: Iterable[Attachment], live: Collection[str], listed_at: float, grace: float = GRACE
) -> list[Attachment]:
    """Attachments whose container is not in `live`, made at least `grace` seconds before the list.

    `listed_at` is in wall-clock seconds.
    """
    return [item for item in attachments if item.key.container_id not in live and item.created < listed_at - grace]
