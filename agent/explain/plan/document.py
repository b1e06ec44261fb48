"""Explanations as JSON: what the node answers to /why, and what `nodewright why -o json` prints.

The keys are the fields of agent/explain/model.py, but a Cost has "told" and "figures", which scripts read.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from agent.explain.model import Cost, End, Explanation, TimelineLine, Wait
from nodelib.json_values import Json
from nodelib.shapes import NUMBER, shaped


def to_json(explanation: Explanation) -> Json:
    """The document for one pod."""
    costs = [
        {"of": one.of, "told": one.text, "figures": dict(one.metrics), "action": one.action}
        for one in explanation.costs
    ]
    return {**asdict(explanation), "costs": costs}


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._-]{0,252}")
_WAIT = {
    "on!": str,
    "reason!": str,
    "error": str,
    "action": str,
    "since": NUMBER,
    "next_try": NUMBER,
    "tries": int,
    "progress": str,
    "share": NUMBER,
}
_LINE = {
    "at!": NUMBER,
    "step!": str,
    "seconds": NUMBER,
    "outcome": str,
    "of": str,
    "note": str,
    "times": int,
    "last_at": NUMBER,
    "kind": str,
    "container": str,
    "attempt": int,
    "of_kind": str,
    "volume": str,
}
_SHAPE: dict[str, Any] = {
    "namespace!": _NAME,
    "name!": _NAME,
    "uid!": _NAME,
    "node": str,
    "phase": str,
    "summary": str,
    "waits": [_WAIT],
    "ends": [{"container!": str, "at!": NUMBER, "how!": str, "why": str, "times": int}],
    "timeline": [_LINE],
    "costs": [{"of!": str, "told!": str, "figures": {"*": NUMBER}, "action": str}],
}
_EMPTY: Json = {"node": "", "phase": "", "summary": "", "waits": [], "ends": [], "timeline": [], "costs": []}


def usable(document: object) -> Json | None:
    """What from_json() can read of an answer; None when it names no pod. Whoever is root in a node may have sent it."""
    found = shaped(document, _SHAPE)
    if found is None:
        return None
    one = {**_EMPTY, **{key: value for key, value in found.items() if f"{key}!" in _SHAPE or key in _SHAPE}}
    for key in ("waits", "ends", "timeline", "costs"):
        known = {name.removesuffix("!") for name in _SHAPE[key][0]}  # a newer agent may say more
        one[key] = [{name: part for name, part in each.items() if name in known} for each in one[key]]
    return one


def from_json(document: Json) -> Explanation:
    """Read what to_json() made, or usable() of what others did. Raises KeyError or TypeError for anything else."""
    rest = {key: document[key] for key in ("namespace", "name", "uid", "node", "phase", "summary")}
    return Explanation(
        **rest,
        waits=tuple(Wait(**one) for one in document["waits"]),
        ends=tuple(End(**one) for one in document["ends"]),
        timeline=tuple(TimelineLine(**one) for one in document["timeline"]),
        costs=tuple(_cost(one) for one in document.get("costs") or ()),
    )


def _cost(document: Json) -> Cost:
    return Cost(document["of"], document["told"], document.get("figures") or {}, document.get("action") or "")
