"""The type of a JSON object as it is parsed, and readers that are safe on any value.

API objects, CNI configurations and answers of `nft -j` are such dicts until a model or plan reads them.
"""

from __future__ import annotations

import json
import math
from typing import Any

import orjson

Json = dict[str, Any]  # a JSON object


def object_or_empty(value: object) -> Json:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> list[Json]:
    """The objects of a list; anything else in it is left out, and anything but a list has none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def texts_in(value: object) -> dict[str, str]:
    """What is text in an object, such as the data of a ConfigMap; anything else in it is left out."""
    return {key: text for key, text in object_or_empty(value).items() if isinstance(text, str)}


def decode(text: str | bytes) -> Any:
    """JSON that others wrote, as its standard has it. Raises json.JSONDecodeError (a ValueError) and nothing else.

    json.loads() alone also accepts NaN, Infinity and halves of surrogate pairs, and raises RecursionError for what is
    nested deeply and a plain ValueError for integers of thousands of digits.
    """
    try:
        written = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        found = json.loads(written, parse_constant=_refuse, parse_float=_finite)
        if "\\u" in written:
            compact(found).encode()
        return found
    except json.JSONDecodeError:
        raise
    except (RecursionError, UnicodeError, ValueError) as error:
        raise json.JSONDecodeError(str(error), "", 0) from error


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text[:40])


def compact(value: Any) -> str:
    """JSON as Go's encoder writes it, for files and hashes that upstream's kubelet reads or computes too."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def encoded_size(value: Any) -> int:
    """Bytes of it as JSON: 3 ms for a megabyte. It must be what was read from JSON."""
    return len(orjson.dumps(value))


def merge_patch(target: Any, patch: Any) -> Any:
    """The target with a JSON merge patch (RFC 7386): null removes, objects are merged, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged
