"""The measures of `bench pods`, each with the target that it is held to. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from cli.bench.pods import Result
from cli.bench.report import Row, Target, percentile

_CORE = "% of a core"
_MEASURES: tuple[tuple[str, str, Callable[[Result], float], Target], ...] = (
    ("create to Ready, one at a time, p50", "s", lambda r: statistics.median(r.ready_alone), Target(0.8)),
    (
        "create to Ready without a token volume, p50",
        "s",
        lambda r: statistics.median(r.ready_without_token),
        Target(),
    ),
    ("create to Ready, one at a time, p99", "s", lambda r: percentile(r.ready_alone, 0.99), Target(0.8)),
    ("the same beyond the runtime's three calls, mean", "ms", lambda r: r.own_share * 1000, Target(value=10)),
    ("of that the API server: one POST, token and PATCH", "ms", lambda r: r.api_share * 1000, Target()),
    ("create to Ready, 10 at once, p50", "s", lambda r: statistics.median(r.ready_together), Target(0.8)),
    ("create to Ready, 10 at once, p99", "s", lambda r: percentile(r.ready_together, 0.99), Target(0.8)),
    ("60 at once, all Ready", "s", lambda r: statistics.median(r.burst_all_ready), Target(0.8)),
    ("delete to gone, one at a time, grace 1 s, p50", "s", lambda r: statistics.median(r.gone_alone), Target(0.2)),
    ("delete to gone, 10 at once, grace 1 s, p99", "s", lambda r: percentile(r.gone_together, 0.99), Target()),
    ("60 at once, all gone", "s", lambda r: statistics.median(r.burst_all_gone), Target(0.5)),
    ("100 at once (40 of them with probes), all gone", "s", lambda r: r.everything_gone, Target(0.5)),
    ("container killed to its end in the API, p50", "s", lambda r: statistics.median(r.reactions.death), Target()),
    ("container killed to its end in the API, worst", "s", lambda r: max(r.reactions.death), Target(0.2, 0.1)),
    ("ConfigMap changed to seen in the pod", "s", lambda r: max(r.reactions.change), Target(value=5)),
    ("kubelet started to all 100 pods known", "s", lambda r: max(r.reactions.restart), Target(value=2)),
    ("kubelet started to all 40 probed again", "s", lambda r: max(r.reactions.probed_again), Target(value=2)),
    ("kubelet CPU for a pod started and deleted", "ms", lambda r: r.agent_cpu_a_pod * 1000, Target(1)),
    ("kubelet idle CPU, few pods", _CORE, lambda r: r.agent_idle_few * 100, Target()),
    ("kubelet idle CPU, 60 pods", _CORE, lambda r: r.agent_idle_burst * 100, Target(0.5)),
    ("kubelet CPU, 100 pods, 15 exec and 25 HTTP probes/s", _CORE, lambda r: r.reactions.probing * 100, Target(1)),
    ("kubelet RSS, few pods", "MiB", lambda r: r.agent_rss_few, Target(1)),
    ("kubelet RSS, 60 pods", "MiB", lambda r: r.agent_rss_burst, Target(1)),
    ("kubelet RSS, 100 pods, 40 of them with probes", "MiB", lambda r: r.reactions.probing_rss, Target(1)),
    ("proxy RSS", "MiB", lambda r: r.proxy_rss, Target(1)),
)


def rows(ours: Result, peer: Result | None) -> list[Row]:
    """One row a measure."""
    return [Row(name, take(ours), take(peer) if peer else None, unit, target) for name, unit, take, target in _MEASURES]
