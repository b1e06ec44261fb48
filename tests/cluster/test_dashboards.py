"""The figures that people have dashboards for: the queries of kubernetes-mixin, and those of our own dashboards.

Soak, because a Prometheus has to scrape a node for a minute and a half: NODEWRIGHT_SOAK=1 ./nodewright test -m soak
tests/cluster/test_dashboards.py, after python -m tests.cluster.prometheus_build.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controlplane.cluster.model import Cluster
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from tests.builders.pods import container, manifest, web
from tests.cluster.command_line import lent_or_raised
from tests.cluster.world import World
from tests.dashboards import grafana
from tests.dashboards.measure import endpoints, measure
from tests.dashboards.prometheus import needs_prometheus
from tests.dashboards.queries import QUERIES, Query, is_incidental
from tests.dashboards.series import Series

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]
_UPSTREAM = ("--agent", "upstream", "--proxy", "upstream")
_METRIC = re.compile(
    r"\b((?:kubelet|kubeproxy|container|storage|volume|rest|process|prober)_\w+)(?:\{([^}]*)\}|(?=\[))"
)
_LABEL = re.compile(r"(\w+)(?:=~|!=|!~|=)\"")
# A node has these only once something was wrong or a claim was mounted, or as far as its kernel counts.
_RARE = re.compile(
    r"_errors?_total$|_evictions|config_error|renew_errors$|deleted_entries|go_|kubelet_volume_stats_|container_fs_"
)
_OF_SCRAPES = {"job", "instance"}


@asynccontextmanager
async def world_of(cluster: Cluster, stats: list[tuple[str, str]]) -> AsyncIterator[World]:
    async with KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-tests") as api:
        yield World(cluster, api, "default", stats)


def wanted(queries: tuple[Query, ...]) -> Iterator[tuple[str, set[str]]]:
    """(metric, labels that it is selected by) of each query."""
    for one in queries:
        for name, matching in _METRIC.findall(one.text):
            if not _RARE.search(name):
                yield name, set(_LABEL.findall(matching)) - _OF_SCRAPES


def lacking(queries: tuple[Query, ...], found: dict[str, dict[str, Series]]) -> dict[str, set[str]]:
    """Metrics that are nowhere, and labels that they do not have."""
    every: dict[str, set[str]] = {}
    for listed in found.values():
        for name, series in listed.items():
            every[name] = every.get(name, set()) | series.labels
    missing = {}
    for name, labels in wanted(queries):
        stem = re.sub(r"_(bucket|count|sum)$", "", name)
        there = every.get(name, every.get(stem))
        if there is None or labels - there:
            missing[name] = labels - (there or set())
    return missing


async def test_a_node_has_the_series_and_labels_that_the_panels_select(world: World) -> None:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    limits = {"limits": {"cpu": "100m", "memory": "64Mi"}}
    busy = container("main", script="sleep 3600 & wait", livenessProbe=probe, resources=limits)
    await world.run(manifest("measured", busy, web(), nodeName="node1"))
    found = await endpoints(world)
    assert lacking(QUERIES, found) == {}
    assert lacking(grafana.queries(), found) == {}


@pytest.mark.soak
@needs_prometheus
async def test_as_many_panels_as_with_upstreams_kubelet_and_proxy_have_data(
    tmp_path: Path, stats: list[tuple[str, str]]
) -> None:
    answered: dict[str, set[Query]] = {}
    for name, words in (("tmixin", ()), ("tmixinup", _UPSTREAM)):
        with lent_or_raised("", name, "--nodes", "1", "--no-demo", *words, timeout=1800) as cluster:
            async with world_of(cluster, stats) as world:
                (tmp_path / name).mkdir()
                answered[name] = (await measure(world, tmp_path / name)).answered
        stats.append((f"queries with data, {name}", f"{len(answered[name])} of {len(QUERIES)}"))
    theirs_alone = [one for one in answered["tmixinup"] - answered["tmixin"] if not is_incidental(one)]
    assert [f"{one.dashboard}: {one.panel}: {one.text}" for one in theirs_alone] == []


@pytest.mark.soak
@needs_prometheus
async def test_every_query_of_our_dashboards_has_data(tmp_path: Path, stats: list[tuple[str, str]]) -> None:
    asked = grafana.queries()
    with lent_or_raised("NODEWRIGHT_TEST_MIXIN", "tmixin", "--nodes", "1", "--no-demo", timeout=1800) as cluster:
        async with world_of(cluster, stats) as world:
            found = await measure(world, tmp_path, asked)
    assert [f"{one.dashboard}: {one.panel}: {one.text}" for one in asked if one not in found.answered] == []
