"""Explanations as JSON: what the node answers to /why, and what `nodewright why -o json` prints.

The keys are the fields of agent/explain/model.py, but a Cost has "told" and "figures", which scripts read.
"""

from __future__ import annotations

from dataclasses import asdict

from agent.explain.model import Cost, End, Explanation, TimelineLine, Wait
from nodelib.json_values import Json


def to_json(explanation: Explanation) -> Json:
    """The document for one pod."""
    costs = [
        {"of": one.of, "told": one.text, "figures": dict(one.metrics), "action": one.action}
        for one in explanation.costs
    ]
    return {**asdict(explanation), "costs": costs}


def from_json(document: Json) -> Explanation:
    """Read what to_json() made. Raises KeyError or TypeError for anything else."""
    rest = {key: document[key] for key in ("namespace", "name", "uid", "node", "phase", "summary")}
    return Explanation(
        **rest,
        waits=tuple(Wait(**one) for one in document["waits"]),
        ends=tuple(End(**one) for one in document["ends"]),
        timeline=tuple(TimelineLine(**one) for one in document["timeline"]),
        costs=tuple(Cost(one["of"], one["told"], one["figures"], one["action"]) for one in document.get("costs") or ()),
    )
