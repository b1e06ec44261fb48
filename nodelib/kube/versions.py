"""resourceVersions: comparable as numbers since Kubernetes 1.35 (KEP-5504)."""

from __future__ import annotations

from nodelib.json_values import Json
from nodelib.text_numbers import is_number

_BEHIND = 60.0  # seconds that a watch may show less than an answer


def version_of(obj: Json) -> int:
    """The resourceVersion of an object; 0, the oldest, for what is no number."""
    text = str(obj.get("metadata", {}).get("resourceVersion", ""))
    return int(text) if is_number(text) else 0


def is_lower_for_good(version: int, known: int, seconds: float) -> bool:
    """Whether a lower version than the one that has been known for so many seconds counts all the same.

    A watch may be behind an answer, but not for long: a cluster that was restored from a backup has lower versions.
    """
    return 0 < version < known and seconds > _BEHIND
