"""Finds attachments whose sandboxes are gone. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from cni.model import Attachment, AttachmentKey

GRACE = 300.0  # seconds: a runtime lists a sandbox only some time after its ADD


def orphaned(
    attachments: Iterable[Attachment], live: Collection[str], listed_at: float, grace: float = GRACE
) -> list[Attachment]:
    """Attachments whose container is not in `live`, made at least `grace` seconds before the list.

    `listed_at` is in wall-clock seconds.
    """
    return [item for item in attachments if item.key.container_id not in live and item.created < listed_at - grace]


def unlisted_since(
    known: Mapping[AttachmentKey, float] | None,
    attachments: Collection[Attachment],
    live: Collection[str],
    wall: float,
    monotonic: float,
) -> dict[AttachmentKey, float]:
    """Since when the runtime does not list the sandbox of each attachment: monotonic seconds, -inf if it did before.

    The wall clock counts only at the first look of this process (`known` None), for attachments that an earlier one
    made: somebody may set it at any moment, and an ADD that is under way must not look old then.
    """
    old = {item.key for item in orphaned(attachments, live, wall)} if known is None else frozenset[AttachmentKey]()
    listed = {item.key for item in attachments if item.key.container_id in live}
    return {
        item.key: -math.inf if item.key in listed or item.key in old else (known or {}).get(item.key, monotonic)
        for item in attachments
    }


def to_release(
    attachments: Iterable[Attachment],
    live: Collection[str],
    unlisted: Mapping[AttachmentKey, float],
    monotonic: float,
    grace: float = GRACE,
) -> list[Attachment]:
    """Attachments whose sandbox has not been listed for `grace` seconds, or is not listed any more."""
    gone = (item for item in attachments if item.key.container_id not in live)
    return [item for item in gone if monotonic - unlisted[item.key] >= grace]
