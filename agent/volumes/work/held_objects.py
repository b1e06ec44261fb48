"""How much is kept in memory of the ConfigMaps and Secrets that the pods of a namespace name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from nodelib.errors import Temporary
from nodelib.json_values import Json, object_or_empty

OF_NAMESPACE = 64 << 20  # bytes
_ENTRY = 100  # bytes that each key takes besides its text: an object of 1 MB may have 100,000


class HeldObjects:
    """Objects are kept as a whole while pods use them, and a pod may name a thousand, of which it shows one key each:
    gigabytes on each node. Upstream has no limit."""

    def __init__(self, of_namespace: int = OF_NAMESPACE) -> None:
        self._most = of_namespace
        self._sizes: dict[Hashable, int] = {}
        self._totals: Counter[str] = Counter()

    def fits(self, key: Hashable, namespace: str, item: Json | None) -> bool:
        """Whether the object may be kept, in the place of what was kept by this key."""
        self.drop(key, namespace)
        size = _size(item) if item is not None else 0
        if self._totals[namespace] + size > self._most:
            return False
        if size:
            self._sizes[key] = size
            self._totals[namespace] += size
        return True

    def drop(self, key: Hashable, namespace: str) -> None:
        """It is not kept any more."""
        self._totals[namespace] -= self._sizes.pop(key, 0)
        if not self._totals[namespace]:
            del self._totals[namespace]

    def refusal(self, key: object, namespace: str) -> Temporary:
        """The error for an object that does not fit."""
        return Temporary(
            f"the pods of namespace {namespace} use more than {self._most >> 20} MiB of ConfigMaps and Secrets on this"
            " node",
            obj=str(key),
            step="read",
            action="Run fewer of them on one node, or put the data into an image or a claim.",
            retry_after=30,
        )


def _size(item: Json) -> int:
    parts = [object_or_empty(item.get(name)) for name in ("data", "binaryData")]
    return sum(_ENTRY + len(key) + len(str(value)) for part in parts for key, value in part.items())
