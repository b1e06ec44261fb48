"""When the scheduler is configured by a file that names the plugin of traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan.components import scheduler_flags
from controlplane.cluster.plan.scheduler import config, config_path, is_timed
from controlplane.config.model import Custom

TRACING = {"tracing": {"endpoint": "10.0.0.9:4317", "samplingRatePerMillion": 1000}}
TRACED = Custom(kubelet=TRACING)
CASES = {
    "it traces": (Options(custom=TRACED), True),
    "it does not": (Options(), False),
    "without a rate": (Options(custom=Custom(kubelet={"tracing": {"endpoint": "10.0.0.9:4317"}})), False),
    "upstream's kubelet, which would not read it": (Options(agent="upstream", custom=TRACED), False),
    "another release": (Options(kubernetes="1.36", custom=TRACED), False),
    "kubeadm's pods": (Options(kubeadm=True, custom=TRACED), False),
    "a file of the user's": (Options(custom=Custom(kubelet=TRACING, scheduler={"config": "/x"})), False),
    "a flag that a file would hide": (Options(custom=Custom(kubelet=TRACING, scheduler={"kube-api-qps": "1"})), False),
    "a flag that goes with a file": (Options(custom=Custom(kubelet=TRACING, scheduler={"v": "4"})), True),
}


@pytest.mark.parametrize(("options", "expected"), CASES.values(), ids=CASES)
def test_the_scheduler_says_when_it_bound_a_pod_where_a_trace_has_room_for_it(options: Options, expected: bool) -> None:
    cluster = Cluster("lab", "10.89.3.0/24", options)
    names = {one.partition("=")[0] for one in scheduler_flags(cluster)}
    assert is_timed(cluster) is expected
    assert (f"--config={config_path(cluster)}" in scheduler_flags(cluster)) is expected
    assert ("--kubeconfig" in names) is not expected, "upstream reads it from the file, or from the flag"


def test_its_plugin_has_the_name_that_the_file_gives() -> None:
    source = Path(__file__).parents[4] / "controlplane/go/cluster/timedbinder/timedbinder.go"
    plugins = config(Cluster("lab", "10.89.3.0/24", Options(custom=TRACED)))["profiles"][0]["plugins"]
    for point in ("preEnqueue", "bind"):
        assert f'const Name = "{plugins[point]["enabled"][0]["name"]}"' in source.read_text()
