"""The facts about upstream that are in the tree are those of the modules that the binaries are built from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from controlplane.cluster.edge.roots import cache_root
from controlplane.compatibility.sources import declared_metrics
from controlplane.compatibility.work import FACTS, upstream_facts
from nodelib.errors import Permanent

pytestmark = [pytest.mark.netns]


def test_the_facts_are_those_of_upstreams_modules() -> None:
    try:
        found = upstream_facts(Path(cache_root()), lambda line: print(line, file=sys.__stderr__, flush=True))
        found["metrics"] = declared_metrics(Path(cache_root()))
    except Permanent as error:
        pytest.skip(f"upstream's modules cannot be asked here: {error}")
    kept = {path.stem: path.read_text(encoding="utf-8") for path in FACTS.glob("*.json")}
    assert kept == found, "python -m controlplane.compatibility facts, then answer what is new"
