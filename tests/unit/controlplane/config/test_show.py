"""What is printed asks for the same, and the schema says what the reader accepts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan import addons, components
from controlplane.config.model import Custom, Member, Port, Ranges, Taint, Wanted
from controlplane.config.plan import show
from controlplane.config.plan.arguments import FIXED
from controlplane.config.plan.document import ADDONS, DOCUMENT
from controlplane.config.plan.fields import Sequence, Table
from controlplane.config.plan.read import parse, wanted
from controlplane.up.plan import check_options, wanted_of
from tests.unit.controlplane.config.test_read import WHOLE

SCHEMA = Path(__file__).resolve().parents[4] / "docs/cluster-schema.json"
_WORDS = st.text("abcn019", min_size=1, max_size=8)
_VALUES = st.one_of(_WORDS, st.sampled_from(["", "true", "1", "1.0", "null", "0x1f", "1e3", "yes", "2026-11-22"]))
_MEMBERS = st.lists(
    st.builds(
        Member,
        name=_WORDS.map(lambda word: f"n-{word}"),
        labels=st.dictionaries(_WORDS, _VALUES, max_size=3),
        taints=st.lists(
            st.builds(Taint, _WORDS, st.just("PreferNoSchedule"), _VALUES), max_size=2, unique_by=lambda one: one.key
        ).map(tuple),
        cpus=st.integers(0, 8),
        memory=st.sampled_from([0, 512 << 20, (512 << 20) + 1, 3 << 30]),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda one: one.name,
).map(tuple)

# Flags of ours that a file may replace. Whoever adds a flag puts it here or into FIXED.
_REPLACEABLE = frozenset(
    {
        "allow-privileged", "authorization-mode", "controllers", "enable-admission-plugins",
        "enable-aggregator-routing", "enable-bootstrap-token-auth", "etcd-compaction-interval", "kube-api-burst",
        "kube-api-qps", "leader-elect", "node-monitor-period", "profiling", "service-node-port-range", "v",
    }
)  # fmt: skip


def test_a_printed_file_asks_for_the_same() -> None:
    asked = wanted(parse(WHOLE, "lab.yaml").values)
    assert wanted(parse(show.text(asked), "printed").values) == asked


@settings(max_examples=15, deadline=None)
@given(_MEMBERS, st.dictionaries(st.sampled_from(["v", "x-y", "profiling"]), _VALUES, max_size=3), st.booleans())
def test_any_nodes_and_flags_survive_the_way_through_a_file(
    members: tuple[Member, ...], flags: dict[str, str], demo: bool
) -> None:
    asked = Wanted("lab", {"nodes": len(members), "demo": demo}, members, Custom(scheduler=flags))
    assert wanted(parse(show.text(asked), "printed").values) == asked


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(nodes=3, ip_family="dual", routed=True, addons="metrics", memory=1 << 30, demo=False),
        Options(kubeadm=True, nodes=4, control_planes=3, network="kindnet"),
        Options(nodes=1, members=(Member("a", 1, labels={"x": "1"}),), custom=Custom(ports=(Port(80, 30080),))),
    ],
    ids=["default", "dual", "kubeadm", "custom"],
)
def test_every_option_of_a_cluster_is_in_its_file(options: Options) -> None:
    cluster = Cluster("lab", "10.89.3.0/24", options)
    found = wanted(parse(show.text(wanted_of(cluster, "demo", "", chosen=True)), "printed").values)
    members = tuple(replace(one, number=0) for one in options.members)
    assert Options(**{**found.options, "members": found.members, "custom": found.custom}) == replace(
        options, members=members
    )
    assert found.ranges == Ranges("10.89.3.0/24", ",".join(cluster.pod_cidrs), ",".join(cluster.service_cidrs))
    check_options(options, found.options)  # the file can be given to `up`


def test_the_schema_in_the_documents_is_that_of_the_reader() -> None:
    assert SCHEMA.read_text() == show.schema(), "./nodewright up --print-schema > docs/cluster-schema.json"


def test_the_schema_knows_the_same_fields_as_the_reader() -> None:
    def compare(table: Table, schema: dict[str, Any]) -> None:
        assert set(schema["properties"]) == set(table.fields) and schema["additionalProperties"] is False
        for name, field in table.fields.items():
            below = schema["properties"][name]
            if isinstance(field.kind, Table):
                compare(field.kind, below)
            elif isinstance(field.kind, Sequence) and isinstance(field.kind.item, Table):
                compare(field.kind.item, below["items"])

    compare(DOCUMENT, json.loads(show.schema()))


def test_every_flag_of_ours_is_replaceable_or_fixed() -> None:
    cluster = Cluster("lab", "10.89.3.0/24", Options(ip_family="dual"))
    single = Cluster("lab", "10.89.3.0/24", Options())
    for program, make in (
        ("kube-apiserver", components.api_server_flags),
        ("kube-controller-manager", components.controller_manager_flags),
        ("kube-scheduler", components.scheduler_flags),
    ):
        ours = {flag.removeprefix("--").partition("=")[0] for one in (cluster, single) for flag in make(one)}
        assert ours - _REPLACEABLE == FIXED[program]


def test_the_file_knows_every_addon() -> None:
    assert sorted(addons.TABLE) == list(ADDONS)
