"""What the texts of a flag say, by the form of the flag: pflag's, and those of k8s.io/component-base/cli/flag.

A flag may be given several times: the last one counts, or all of them where the form is one of many entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodelib.text_numbers import is_number


def convert(form: str, texts: list[str]) -> Any:
    """Raises ValueError for a text that is not of the form."""
    return _FORMS[form](texts)


def _bool(texts: list[str]) -> bool:
    words = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
    text = texts[-1].lower()
    if text not in words:
        raise ValueError(f"{texts[-1]!r} is neither true nor false")
    return words[text]


def _int(texts: list[str]) -> int:
    try:
        return int(texts[-1], 0)
    except ValueError as error:
        raise ValueError(f"{texts[-1]!r} is not a whole number") from error


def _list(texts: list[str]) -> list[str]:
    return [entry.strip() for text in texts for entry in text.split(",") if entry.strip()]


def _pairs(texts: list[str], separator: str) -> list[tuple[str, str]]:
    pairs = []
    for entry in _list(texts):
        key, found, value = entry.partition(separator)
        if not found or not key.strip():
            raise ValueError(f"{entry!r} must be of the form key{separator}value")
        pairs.append((key.strip(), value.strip()))
    return pairs


def _map(texts: list[str]) -> dict[str, str]:
    return dict(_pairs(texts, "="))


def _thresholds(texts: list[str]) -> dict[str, str]:
    return dict(_pairs(texts, "<"))


def _gates(texts: list[str]) -> dict[str, bool]:
    return {key: _bool([value]) for key, value in _pairs(texts, "=")}


def _headers(texts: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in _pairs(texts, ":"):
        found.setdefault(key, []).append(value)
    return found


def _taints(texts: list[str]) -> list[dict[str, str]]:
    """key=value:effect or key:effect."""
    taints = []
    for entry in _list(texts):
        head, found, effect = entry.rpartition(":")
        if not found or not head:
            raise ValueError(f"{entry!r} must be of the form key=value:effect")
        key, _, value = head.partition("=")
        taints.append({"key": key, "effect": effect} | ({"value": value} if value else {}))
    return taints


def _reserved_memory(texts: list[str]) -> list[dict[str, Any]]:
    """0:memory=1Gi,hugepages-1Gi=2Gi, repeated."""
    entries = []
    for text in texts:
        node, found, limits = text.partition(":")
        if not found or not is_number(node):
            raise ValueError(f"{text!r} must be of the form NUMA:memory=1Gi,...")
        entries.append({"numaNode": int(node), "limits": _map([limits])})
    return entries


def _vmodule(texts: list[str]) -> list[dict[str, Any]]:
    return [{"filePattern": key, "verbosity": _int([value])} for key, value in _pairs(texts, "=")]


_FORMS: Mapping[str, Any] = {
    "string": lambda texts: texts[-1],
    "bool": _bool,
    "int": _int,
    "list": _list,
    "map": _map,
    "thresholds": _thresholds,
    "gates": _gates,
    "headers": _headers,
    "taints": _taints,
    "reserved-memory": _reserved_memory,
    "vmodule": _vmodule,
}
