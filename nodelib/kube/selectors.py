"""Field and label selectors of a request, applied to what comes back.

The API server has already applied them. If an object comes that it cannot have selected, then something between it and
this node has dropped the selector from the request, and the answer must not be used: it holds other nodes' pods.
Follows k8s.io/apimachinery/pkg/fields and labels for the forms that this project sends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from nodelib.json_values import Json, object_or_empty

Selects = Callable[[Json], bool]

_TERM = re.compile(r"([^=!]+)(==|!=|=)([^=!]*)")


def selects(params: Mapping[str, str]) -> Selects:
    """Whether an object fits the fieldSelector and labelSelector of `params`. Terms of another form fit everything."""
    tests = [_field(term) for term in _terms(params, "fieldSelector")]
    tests += [_label(term) for term in _terms(params, "labelSelector")]
    return lambda item: all(test(item) for test in tests)


def _terms(params: Mapping[str, str], key: str) -> list[str]:
    return [term.strip() for term in params.get(key, "").split(",") if term.strip()]


def _field(term: str) -> Selects:
    match = _TERM.fullmatch(term)
    if match is None:
        return lambda item: True
    path, operator, value = match.group(1).split("."), match.group(2), match.group(3)
    return lambda item: (_at(item, path) == value) is (operator != "!=")


def _label(term: str) -> Selects:
    match = _TERM.fullmatch(term)
    if match is not None:
        name, operator, value = match.groups()
        return lambda item: (_labels(item).get(name) == value) is (operator != "!=")
    if " " in term or "(" in term or ")" in term:
        return lambda item: True
    absent = term.startswith("!")
    return lambda item: (term.removeprefix("!") in _labels(item)) is not absent


def _at(item: Json, path: list[str]) -> str:
    found: object = item
    for part in path:
        found = object_or_empty(found).get(part)
    return "" if found is None else str(found)


def _labels(item: Json) -> Json:
    return object_or_empty(object_or_empty(item.get("metadata")).get("labels"))
