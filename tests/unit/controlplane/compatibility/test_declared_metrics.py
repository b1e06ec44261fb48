"""Which metrics Go sources declare: every way in which upstream's kubelet does it."""

from __future__ import annotations

from controlplane.binaries.model import KUBERNETES_VERSION
from controlplane.compatibility.plan.metrics import Declared, declared, from_facts, is_read, metrics_file
from nodelib.upstream import answers

KEYS = """
const (
	KubeletSubsystem = "kubelet"
	StartsKey        = "starts_total"
	nodeLabel        = "node"
)
"""
SOURCE = """
var (
	Starts = metrics.NewCounterVec(
		&metrics.CounterOpts{
			Subsystem:      metrics.KubeletSubsystem,
			Name:           StartsKey,
			Help:           "Starts (of pods), \\"all\\" of them",
			StabilityLevel: metrics.ALPHA,
		},
		[]string{nodeLabel, "kind"},
	)
	Took = compbasemetrics.NewHistogram(
		&compbasemetrics.HistogramOpts{Namespace: "a", Subsystem: "b", Name: "c_seconds", Buckets: []float64{1, 2}},
	)
	usedDesc = metrics.NewDesc("used_bytes", "Used.", []string{
		"uid",
		"pod",
	}, nil, metrics.ALPHA, "")
	timeDesc = metrics.NewDesc(
		metrics.BuildFQName("", metrics.KubeletSubsystem, StartsKey), "Time.", nil, nil, metrics.ALPHA, "")
	others = metrics.NewDesc(m.Name, m.Help, m.LabelKeys, nil, metrics.INTERNAL, "")
)

func collect() {
	metrics.NewLazyConstMetric(timeDesc, metrics.CounterValue, 1)
	legacyregistry.RawMustRegister(metrics.NewGaugeFunc(metrics.GaugeOpts{Name: "left_seconds"}, left))
}
"""


def test_every_way_to_declare_a_metric_is_read() -> None:
    found = declared({"pkg/kubelet/keys/keys.go": KEYS, "pkg/kubelet/a/a.go": SOURCE})
    assert [(one.name, one.kind, one.labels) for one in found] == [
        ("a_b_c_seconds", "histogram", ()),
        ("kubelet_starts_total", "counter", ("kind", "node")),
        ("left_seconds", "gauge", ()),
        ("used_bytes", "gauge", ("pod", "uid")),
    ]
    alone = declared({"pkg/kubelet/a/a.go": KEYS + SOURCE[SOURCE.index("\ttimeDesc") :]})
    assert ("kubelet_starts_total", "counter") in [(one.name, one.kind) for one in alone]


def test_only_what_a_node_runs_is_read() -> None:
    assert is_read("pkg/kubelet/metrics/metrics.go") and is_read("pkg/volume/util/metrics.go")
    for path in ("pkg/kubelet/kubelet_test.go", "pkg/kubelet/a_windows.go", "pkg/proxy/metrics/metrics.go"):
        assert not is_read(path)


def test_the_facts_are_of_the_release_and_can_be_read_again() -> None:
    facts = answers.facts("metrics")
    assert facts["kubernetes"] == KUBERNETES_VERSION
    known = from_facts(facts)
    assert len(known) > 150
    assert Declared("kubelet_evictions", "counter", ("eviction_signal",), "pkg/kubelet/metrics") in known
    text = metrics_file("v1", {"pkg/kubelet/keys/keys.go": KEYS, "pkg/kubelet/a/a.go": SOURCE})
    assert text.startswith('{\n  "kubernetes": "v1",\n  "metrics": [\n    {"name": "a_b_c_seconds"')
