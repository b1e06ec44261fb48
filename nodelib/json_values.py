"""The type of a JSON object as it is parsed, and readers that are safe on any value.

API objects, CNI configurations and answers of `nft -j` are such dicts until a model or plan reads them.
"""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]  # a JSON object


def object_or_empty(value: object) -> Json:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> list[Json]:
    """The objects of a list; anything else in it is left out, and anything but a list has none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def compact(value: Any) -> str:
    """JSON as Go's encoder writes it, for files and hashes that upstream's kubelet reads or computes too."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
