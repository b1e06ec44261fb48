"""docs/metrics.md: which queries give data, and every metric that ours and upstream's daemons do not share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from tests.dashboards.declared import served, unserved
from tests.dashboards.facts import Facts
from tests.dashboards.queries import QUERIES, Query
from tests.dashboards.reasons import LABELS, MISSING, OWN, SILENT
from tests.dashboards.series import Series

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
Reasons = tuple[tuple[str, str], ...]

_HEAD = """\
# Metrics

The kubelet serves `/metrics`, `/metrics/cadvisor`, `/metrics/probes` and `/metrics/resource` on port 10250, the proxy
`/metrics` on 127.0.0.1:10249. Names, labels and types are upstream's, so that the dashboards, rules and alerts that
people have go on working. This page says how far. It is made by `python -m tests.dashboards`, which has a real
Prometheus scrape a node of ours, and one of `up --agent upstream --proxy upstream` with upstream's kubelet and proxy,
both under the same pods. A metric with labels is in no scrape until something of its kind has happened: what upstream's
kubelet declares is therefore read from its sources, too (`python -m controlplane.compatibility facts`).

## Dashboards of our own

For Grafana, to be imported as they are: [pod start stages](dashboards/pod-start.json) and
[service sync](dashboards/service-sync.json). `tests/cluster/test_dashboards.py` asks each of their queries of a node.

## Dashboards that people have

The panels of [kubernetes-mixin](https://github.com/kubernetes-monitoring/kubernetes-mixin) about kubelet, pods, proxy
and nodes, the recording rules below them, and what its alerts compare: a query for each target.
"""


def page(ours: Facts, theirs: Facts) -> str:
    """The whole page."""
    parts = (_answers, _missing, _declared, _differing, _own)
    return "\n".join([_HEAD, *(line for part in parts for line in part(ours, theirs)), ""])


def reason(reasons: Reasons, name: str) -> str:
    """The first that fits; "" for none."""
    return next((why for pattern, why in reasons if fnmatch(name, pattern)), "")


def missing(ours: Facts, theirs: Facts) -> Iterator[tuple[str, str, Series]]:
    """(endpoint, metric, what it is) of upstream's that ours lacks there, and has not come to serve since."""
    for endpoint, listed in theirs.endpoints.items():
        for name, series in listed.items():
            is_new = endpoint.startswith("kubelet ") and name in served() and not reason(MISSING, name)
            if name not in ours.endpoints[endpoint] and not is_new:
                yield endpoint, name, series


def differing(ours: Facts, theirs: Facts) -> Iterator[tuple[str, str, str]]:
    """(endpoint, metric, difference) of those that both have."""
    for endpoint, listed in theirs.endpoints.items():
        for name, series in listed.items():
            mine = ours.endpoints[endpoint].get(name)
            if mine is None or mine == series:
                continue
            words = [f"is a {mine.kind}, not a {series.kind}"] if mine.kind != series.kind else []
            words += [f"lacks `{one}`" for one in sorted(series.labels - mine.labels)]
            words += [f"has `{one}` too" for one in sorted(mine.labels - series.labels)]
            yield endpoint, name, ", ".join(words)


def silent(ours: Facts) -> list[Query]:
    """Our queries without data, in their order."""
    return [one for one in QUERIES if one in ours.silent]


def _answers(ours: Facts, theirs: Facts) -> Iterator[str]:
    yield "| dashboard | queries | with data: ours | with data: upstream's |\n| --- | --- | --- | --- |"
    names = list(dict.fromkeys(one.dashboard for one in QUERIES))
    for name in names:
        asked = [one for one in QUERIES if one.dashboard == name]
        yield f"| {name} | {len(asked)} | {_count(asked, ours)} | {_count(asked, theirs)} |"
    yield f"| all | {len(QUERIES)} | {_count(QUERIES, ours)} | {_count(QUERIES, theirs)} |"
    yield "\nWithout data here:\n\n| panel | upstream's | why |\n| --- | --- | --- |"
    for one in silent(ours):
        also = "none either" if one in theirs.silent else "data"
        yield f"| {one.dashboard}: {one.panel}, `{_short(one.text)}` | {also} | {reason(SILENT, one.text)} |"


def _missing(ours: Facts, theirs: Facts) -> Iterator[str]:
    yield "\n## What upstream's daemons have and ours do not\n"
    yield from _table(((endpoint, name, reason(MISSING, name)) for endpoint, name, _ in missing(ours, theirs)))


def _declared(ours: Facts, theirs: Facts) -> Iterator[str]:
    yield "\n## What upstream's kubelet declares, no scrape showed, and ours does not serve\n"
    shown = {name for _, name, _ in missing(ours, theirs)}
    yield from _table(("kubelet", one.name, reason(MISSING, one.name)) for one in unserved() if one.name not in shown)


def _differing(ours: Facts, theirs: Facts) -> Iterator[str]:
    yield "\n## The same metric with other labels\n"
    found = defaultdict[tuple[str, str, str], list[str]](list)
    for endpoint, name, words in differing(ours, theirs):
        found[endpoint, words, reason(LABELS, name)].append(name)
    yield "| endpoint | metrics | ours | why |\n| --- | --- | --- | --- |"
    for (endpoint, words, why), names in found.items():
        yield f"| {endpoint} | {_names(names)} | {words} | {why} |"


def _own(ours: Facts, theirs: Facts) -> Iterator[str]:
    yield "\n## What only ours have\n"
    found = (
        (endpoint, name, reason(OWN, name))
        for endpoint, listed in ours.endpoints.items()
        for name in listed
        if name not in theirs.endpoints[endpoint]
    )
    yield from _table(found)


def _table(rows: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    """Metrics of one endpoint with the same reason share a row."""
    found = defaultdict[tuple[str, str], list[str]](list)
    for endpoint, name, why in rows:
        found[endpoint, why].append(name)
    yield "| endpoint | metrics | why |\n| --- | --- | --- |"
    for (endpoint, why), names in found.items():
        yield f"| {endpoint} | {_names(names)} | {why} |"


def _names(names: list[str]) -> str:
    return ", ".join(f"`{one}`" for one in sorted(names))


def _count(asked: tuple[Query, ...] | list[Query], facts: Facts) -> int:
    return sum(one not in facts.silent for one in asked)


def _short(text: str) -> str:
    return text.replace("|", "\\|")
