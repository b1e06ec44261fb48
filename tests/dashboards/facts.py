"""What was measured last, of our daemons and of upstream's: files in facts/, which docs/metrics.md is made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.dashboards.measure import Measured
from tests.dashboards.queries import QUERIES, Query
from tests.dashboards.series import Series, as_json, from_json

FOLDER = Path(__file__).parent / "facts"
MAKERS = ("nodewright", "upstream")


@dataclass(frozen=True)
class Facts:
    """`silent`: queries without data; `endpoints`: metrics by endpoint."""

    silent: frozenset[Query]
    endpoints: Mapping[str, Mapping[str, Series]]


def write(maker: str, found: Measured) -> None:
    silent = [
        {"dashboard": one.dashboard, "panel": one.panel, "query": one.text}
        for one in QUERIES
        if one not in found.answered
    ]
    endpoints = {name: as_json(one) for name, one in found.endpoints.items()}
    text = json.dumps({"silent": silent, "endpoints": endpoints}, indent=1)
    (FOLDER / f"{maker}.json").write_text(text + "\n")


def read(maker: str) -> Facts:
    known = json.loads((FOLDER / f"{maker}.json").read_text())
    silent = frozenset(Query(one["dashboard"], one["panel"], one["query"]) for one in known["silent"])
    return Facts(silent, {name: from_json(listed) for name, listed in known["endpoints"].items()})
