"""Every spec of both suites, as docs/scoreboard.json lists them, is in one part or behind one rule."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from controlplane.scoreboard.model import Group, Program, Rule, Spec
from controlplane.scoreboard.plan import clusters, document, explanations, page
from controlplane.scoreboard.plan.document import Board
from controlplane.scoreboard.plan.groups import GROUPS
from controlplane.scoreboard.plan.partition import LARGEST, partition, place
from controlplane.scoreboard.plan.rules import RULES
from controlplane.up import plan as up_plan
from nodelib.errors import Invalid

ROOT = Path(__file__).resolve().parents[4]
ABILITIES = frozenset(rule.unless for rule in RULES if rule.unless)


@pytest.fixture(scope="module")
def board() -> Board:
    said = explanations.read((ROOT / "controlplane/scoreboard/explanations.txt").read_text())
    return document.read((ROOT / "docs/scoreboard.json").read_text(), said)


@pytest.mark.parametrize("abilities", [frozenset[str](), ABILITIES], ids=["a poor machine", "a rich machine"])
def test_every_spec_is_in_one_place(board: Board, abilities: frozenset[str]) -> None:
    specs = board.partition.specs
    divided = partition(specs, abilities)
    where = Counter(spec for part in divided.parts for spec in part.specs)
    where.update(spec for _, kept_out in divided.kept_out for spec in kept_out)
    assert set(where) == set(specs) and set(where.values()) == {1}
    assert all(len(part.specs) <= LARGEST and len({s.program for s in part.specs}) == 1 for part in divided.parts)
    assert len({part.name for part in divided.parts}) == len(divided.parts)


def test_conformance_has_parts_of_its_own(board: Board) -> None:
    """They run first."""
    for part in board.partition.parts:
        assert part.conformance == ("-conformance-" in part.name)
        assert part.conformance or not any("Conformance" in spec.tags for spec in part.specs), part.name


def test_only_what_upstream_runs_alone_has_one_process(board: Board) -> None:
    """ginkgo runs specs that are marked as serial after the others, also in a part with several processes."""
    for part in board.partition.parts:
        if part.group.procs == 1 and part.group.setup != "cri-proxy":
            assert all({"Serial", "Disruptive"} & {*spec.tags} for spec in part.specs), part.name


def test_it_does_not_depend_on_the_order_of_the_list(board: Board) -> None:
    backwards = reversed(board.partition.specs)
    assert partition(backwards, board.machine.abilities) == board.partition


def test_no_rule_and_no_group_is_dead(board: Board) -> None:
    listed = {program for program in Program if any(s.program is program for s in board.partition.specs)}
    used = {_name(place(spec, frozenset())) for spec in board.partition.specs}
    everything: list[Rule | Group] = [*RULES, *GROUPS]
    known = {*listed, *([None] if listed == set(Program) else [])}
    assert {_name(one) for one in everything if one.match.program in known} <= used


def _name(one: Rule | Group) -> str:
    return one.reason if isinstance(one, Rule) else one.name


def test_what_a_machine_can_do_voids_a_rule() -> None:
    spec = Spec(Program.E2E, "[sig-network] Services should be sent over SCTP [Feature:SCTPConnectivity]")
    kept_out, runs = place(spec, frozenset()), place(spec, frozenset({"sctp"}))
    assert isinstance(kept_out, Rule) and kept_out.unless == "sctp"
    assert isinstance(runs, Group) and runs.name == "e2e-network"


@pytest.mark.parametrize(
    ("program", "name", "wanted"),
    [
        (Program.E2E, "[sig-network] DNS should provide DNS for services [Conformance]", "e2e-network"),
        (Program.E2E, "[sig-apps] DaemonSet rolls back [Serial]", "e2e-serial"),
        (Program.E2E, "[sig-network] Netpol denies all [Feature:NetworkPolicy]", "e2e-policies"),
        (Program.E2E, "[sig-node] Pods are new [Alpha] [Feature:OffByDefault]", "e2e-gates"),
        (Program.E2E, "[sig-storage] CSI Mock volume attach should not require VolumeAttach", "e2e-storage"),
        (Program.E2E, "[sig-node] [DRA] [Feature:DynamicResourceAllocation] must run", "e2e-node"),
        (Program.E2E, "[sig-node] [DRA] kubelet [Feature:X] with v1beta2 API supports claims", "e2e-gates"),
        (Program.E2E, "[sig-api-machinery] StorageVersion resources [Feature:StorageVersionAPI] GC", "e2e-gates"),
        (
            Program.NODE,
            "[sig-node] InodeEviction [Slow] [Serial] [Disruptive] [Feature:Eviction] when full",
            "node-eviction",
        ),
        (Program.NODE, "[sig-node] ContainerLogRotation [Slow] [Serial] [Disruptive] rotates", "node-serial"),
        (Program.NODE, "[sig-node] Device Plugin [Serial] keeps devices over restarts", "node-devices"),
        (Program.NODE, "[sig-node] [DRA] [Feature:DynamicResourceAllocation] must run [Serial]", "node-devices"),
        (Program.NODE, "[sig-node] Pods should run [Slow] [NodeConformance]", "node-parallel"),
    ],
)
def test_where_specs_go(program: Program, name: str, wanted: str) -> None:
    where = place(Spec(program, name), frozenset())
    assert isinstance(where, Group) and where.name == wanted


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("[sig-storage] CSI Volumes [Driver: csi-hostpath] volumes should store", "hostpath"),
        ("[sig-storage] Volume metrics PVC should create metrics for total time taken", "hostpath"),
        ("[sig-storage] Dynamic Provisioning DynamicProvisioner External should let an external provisioner", "NFS"),
        ("[sig-node] kubelet [Feature:NodeLogQuery] should return the kubelet logs for the current boot", "journal"),
    ],
)
def test_what_is_not_there_keeps_its_specs_out(name: str, reason: str) -> None:
    where = place(Spec(Program.E2E, name), ABILITIES)
    assert isinstance(where, Rule) and reason in where.reason


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_up_takes_the_options_of_each_group(group: Group) -> None:
    for maker in group.makers:
        up_plan.check_options(clusters.options_of(group, maker))


def test_the_page_is_made_from_the_document(board: Board) -> None:
    made = ROOT / "docs/scoreboard.md"
    assert made.read_text() == page.page(board), "./nodewright conformance --scoreboard writes both"
    assert document.read(document.write(board), board.explanations) == board


def test_explanations_are_of_specs_that_exist(board: Board) -> None:
    assert set(board.explanations) <= {spec.name for spec in board.partition.specs}


@pytest.mark.parametrize("text", ["a spec without a sentence", "spec | once\nspec | twice", "spec |  "])
def test_explanations_are_one_for_each_spec(text: str) -> None:
    with pytest.raises(Invalid):
        explanations.read(text)


@pytest.mark.parametrize("pattern", ["no-such-part", "("])
def test_parts_that_are_not_there_are_refused(board: Board, pattern: str) -> None:
    with pytest.raises(Invalid):
        clusters.named(board.partition, pattern)


def test_queries_of_logs_that_need_no_journal_are_run() -> None:
    spec = Spec(Program.E2E, "[sig-node] kubelet [Feature:NodeLogQuery] should return the error with an empty --query")
    assert not isinstance(place(spec, ABILITIES), Rule)


@pytest.mark.parametrize(
    ("name", "can"),
    [
        ("Kubelet's oom-score-adj should be -999", False),
        ("burstable container's oom-score-adj should be between", True),
    ],
)
def test_scores_below_zero_need_a_machine_that_may_lower_them(name: str, can: bool) -> None:
    spec = Spec(Program.NODE, f"[sig-node] Validate OOM score adjustments [Feature:OOMScoreAdj] {name} [Serial]")
    assert isinstance(place(spec, frozenset()), Rule) is not can
    assert not isinstance(place(spec, frozenset({"oom-scores"})), Rule)
