"""Tiers, selections, command lines and JUnit reports of the e2e suite."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from controlplane import suites
from controlplane.suites.plan.conformance import (
    Chosen,
    Selection,
    alone,
    exactly,
    feature_of,
    for_server,
    read_junit,
    read_tiers,
    select,
    table,
    without_labels,
)
from nodelib.errors import Invalid

TIERS = (Path(suites.__file__).parent / "tiers.txt").read_text()
CHOSEN = (Chosen("smoke", "logs", "[sig-node] A (b) [Conformance]"), Chosen("dev", "probes", "[sig-node] C [Slow]"))


def test_the_lists_of_the_project() -> None:
    chosen = read_tiers(TIERS)
    assert sum(test.tier == "smoke" for test in chosen) == 7
    assert {test.tier for test in chosen} == {"smoke", "dev"}
    assert len({test.name for test in chosen}) == len(chosen) == 29


def test_a_bad_line_is_named() -> None:
    with pytest.raises(Invalid, match="line 2"):
        read_tiers("# comment\nsmoke | no name\n")


def test_smoke_is_part_of_dev() -> None:
    smoke = select("smoke", CHOSEN, focus="", skip="", serial=False)
    dev = select("dev", CHOSEN, focus="", skip="", serial=False)
    assert smoke.focus == r"\[sig-node\] A \(b\) \[Conformance\]$"
    assert dev.focus == smoke.focus + r"|\[sig-node\] C \[Slow\]$"


def test_full_leaves_serial_tests_out_unless_asked() -> None:
    assert select("full", CHOSEN, focus="", skip="x", serial=False).labels == "Conformance && !Serial && !Disruptive"
    assert select("full", CHOSEN, focus="", skip="x", serial=True).labels == "Conformance"


def test_a_focus_takes_the_place_of_the_tier() -> None:
    chosen = select("full", CHOSEN, focus="DNS", skip="", serial=False)
    assert (chosen.focus, chosen.labels) == ("DNS", "")


def test_an_older_control_plane_is_not_asked_for_newer_features() -> None:
    dev = select("dev", CHOSEN, focus="", skip="x", serial=False)
    assert for_server(dev, "1.37", "1.37") == dev
    skip = for_server(dev, "1.35", "1.37").skip
    assert skip == r"x|\[MinimumKubeletVersion:1\.(36|37)\]"
    bundle = next(one.name for one in read_tiers(TIERS) if "ClusterTrustBundle" in one.name)
    assert re.search(for_server(Selection(), "1.36", "1.37").skip, bundle)
    assert not re.search(for_server(Selection(), "1.36", "1.37").skip, bundle.replace("1.37", "1.34"))


def test_the_command_for_one_test_survives_a_shell() -> None:
    words = ["./nodewright", "conformance", "--focus", r"\[sig\] it's$"]
    assert shlex.split(alone("[sig] it's", "nodewright")) == words
    assert shlex.split(alone("x", "lab")) == ["./nodewright", "conformance", "--focus", "x$", "--name", "lab"]
    elsewhere = shlex.split(alone("x", "lab", "a b.conf"))
    assert elsewhere == ["./nodewright", "conformance", "--kubeconfig", "a b.conf", "--focus", "x$"]


def test_exactly_escapes_what_go_would_read() -> None:
    assert exactly("a.b (c) [d] *not*") == r"a\.b \(c\) \[d\] \*not\*$"


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("[sig-node] P a [Conformance] [sig-node, Conformance]", "[sig-node] P a [Conformance]"),
        ("[sig-network] hairpin [sig-network]", "[sig-network] hairpin"),
        ("[sig-node] P a [Conformance]", "[sig-node] P a [Conformance]"),
        ("[sig-node] P a [KubeletMinVersion:1.34] [kubelet: [>=1.34]]", "[sig-node] P a [KubeletMinVersion:1.34]"),
        ("[sig-node] P a [sig-node, DRA] [kubelet: [>=1.34], x: [<2]]", "[sig-node] P a"),
    ],
)
def test_without_labels(reported: str, name: str) -> None:
    assert without_labels(reported) == name


JUNIT = """<testsuites><testsuite>
<testcase name="[ReportBeforeSuite]" status="passed" time="1"/>
<testcase name="[It] [sig-node] A (b) [Conformance] [sig-node, Conformance]" status="passed" time="2.5"/>
<testcase name="[It] [sig-node] X should work [sig-node]" status="failed" time="3">
  <failure message="no   answer">text</failure></testcase>
<testcase name="[It] [sig-apps] skipped [sig-apps]" status="skipped" time="0"><skipped message="s"/></testcase>
<testcase name="[SynchronizedBeforeSuite]" status="failed" time="3"><failure>nodes not ready</failure></testcase>
</testsuite></testsuites>"""


def test_read_junit() -> None:
    results = read_junit(JUNIT, {"A (b)": "logs"})
    assert [(r.name, r.feature, r.outcome, r.reason) for r in results] == [
        ("[sig-node] A (b) [Conformance]", "logs", "passed", ""),
        ("[sig-node] X should work", "sig-node: X", "failed", "no answer"),
        ("[SynchronizedBeforeSuite]", "suite", "failed", "nodes not ready"),
    ]


def test_table_counts_by_feature() -> None:
    rows = table(read_junit(JUNIT, {"A (b)": "logs"}))
    assert [(row.feature, row.passed, row.failed) for row in rows] == [
        ("logs", 1, 0),
        ("sig-node: X", 0, 1),
        ("suite", 0, 1),
    ]
    assert rows[1].failures[0].reason == "no answer"


def test_features_of_tests_that_no_list_names() -> None:
    name = "[sig-network] DNS should provide DNS for services [Conformance]"
    assert feature_of(name, {}) == "sig-network: DNS"
