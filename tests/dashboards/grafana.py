"""The queries of our own dashboards, in docs/dashboards."""

from __future__ import annotations

import json
from pathlib import Path

from nodelib.json_values import Json
from tests.dashboards.queries import WINDOW, Query

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "dashboards"
_VARIABLES = {"$instance": ".+", "$__rate_interval": WINDOW}


def dashboards() -> dict[str, Json]:
    """By the name of the file."""
    return {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def queries() -> tuple[Query, ...]:
    """With a value in the place of each variable, as Grafana asks them."""
    return tuple(
        Query(dashboard["title"], panel["title"], _filled(target["expr"], _job(dashboard)))
        for dashboard in dashboards().values()
        for panel in dashboard["panels"]
        for target in panel["targets"]
    )


def _job(dashboard: Json) -> str:
    (found,) = (one for one in dashboard["templating"]["list"] if one["name"] == "job")
    return str(found["current"]["value"])


def _filled(text: str, job: str) -> str:
    for name, value in {"$job": job, **_VARIABLES}.items():
        text = text.replace(name, value)
    return text
