"""The affinity that topology policies choose, whatever the order of the hints."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.common.model.refusal import Refusal
from agent.devices.model.devices import AllocationKey, Device, DeviceAllocation, RegisteredPlugin
from agent.devices.plan.devices import Candidates
from agent.devices.plan.topology import device_hints, with_affinity
from agent.managers.model.cpus import CpuTopology
from agent.managers.plan import cpus
from agent.managers.plan.admission import AdmissionResult, ManagerState, Policies, admit_pod
from agent.managers.plan.cpus import CpuState
from agent.managers.plan.hints import Hint, Hints, mask_of, masks, nodes_of, width
from agent.managers.plan.options import CpuOptions, TopologyOptions
from agent.managers.plan.topology import TopologyPolicy, merge, topology_policy
from nodelib.errors import Invalid
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.unit.agent.managers.machines import DUAL, QUAD_NUMA, guaranteed, machine

NAMES = ("best-effort", "restricted", "single-numa-node")


def policy(
    name: str, topology: CpuTopology = DUAL, scope: str = "container", *, closest: bool = False
) -> TopologyPolicy:
    made = topology_policy(name, scope, topology.nodes, TopologyOptions(closest))
    assert made is not None
    return made


def hints_on(*listed: tuple[tuple[int, ...] | None, bool]) -> tuple[Hint, ...]:
    return tuple(Hint(None if nodes is None else mask_of(nodes), preferred) for nodes, preferred in listed)


ONE = hints_on(((0,), True), ((1,), True), ((0, 1), False))


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        pytest.param([{}], {"best-effort": (3, True), "single-numa-node": (None, True)}, id="nobody cares"),
        pytest.param([{"cpu": ONE}], {"best-effort": (1, True), "single-numa-node": (1, True)}, id="the first will do"),
        pytest.param(
            [{"cpu": ONE}, {"gpu": hints_on(((1,), True), ((0, 1), False))}],
            {"best-effort": (2, True), "single-numa-node": (2, True)},
            id="the only one that both have",
        ),
        pytest.param(
            [{"cpu": hints_on(((0,), True))}, {"gpu": hints_on(((1,), True))}],
            {"best-effort": (3, False), "restricted": None, "single-numa-node": None},
            id="none that both have",
        ),
        pytest.param(
            [{"cpu": hints_on(((0, 1), True))}],
            {"best-effort": (3, True), "restricted": (3, True), "single-numa-node": None},
            id="it needs both nodes",
        ),
        pytest.param(
            [{"cpu": hints_on(((0, 1), False))}],
            {"best-effort": (3, False), "restricted": None, "single-numa-node": None},
            id="two nodes where one would ever do",
        ),
        pytest.param(
            [{"gpu": ()}],
            {"best-effort": (3, False), "restricted": None, "single-numa-node": None},
            id="cannot be given",
        ),
    ],
)
def test_merge(hints: list[Hints], expected: dict[str, tuple[int | None, bool] | None]) -> None:
    for name, wanted in expected.items():
        best, admissible = merge(policy(name), hints)
        assert admissible == (wanted is not None)
        if wanted is not None:
            assert (best.affinity, best.preferred) == wanted


def test_the_closest_of_several_nodes_with_the_option() -> None:
    nodes = tuple(
        node.__class__(node.id, node.memory, {}, distances)
        for node, distances in zip(
            QUAD_NUMA.nodes, [(10, 30, 30, 12), (30, 10, 12, 30), (30, 12, 10, 30), (12, 30, 30, 10)], strict=True
        )
    )
    topology = CpuTopology(QUAD_NUMA.cpus, nodes)
    hints = [{"cpu": hints_on(((0, 1), True), ((1, 2), True), ((0, 3), True))}]
    assert merge(policy("best-effort", topology), hints)[0].affinity == mask_of((0, 1))
    # (0, 3) is as close as (1, 2): lower numbers count, as one number.
    assert merge(policy("best-effort", topology, closest=True), hints)[0].affinity == mask_of((1, 2))


def test_a_machine_with_too_many_nodes() -> None:
    wide = machine(numas=9, cores=9)
    with pytest.raises(Invalid, match="unsupported on machines with more than 8 NUMA Nodes"):
        policy("restricted", wide)
    assert topology_policy("restricted", "pod", wide.nodes, TopologyOptions(most_nodes=9)) is not None
    assert topology_policy("none", "pod", wide.nodes, TopologyOptions()) is None


_HINT = st.builds(Hint, st.one_of(st.none(), st.sampled_from(list(masks(range(3))))), st.booleans())
_HINTS = st.dictionaries(st.sampled_from("ab"), st.lists(_HINT, max_size=4).map(tuple), max_size=2)


@settings(max_examples=60)
@given(st.lists(_HINTS, min_size=1, max_size=3), st.sampled_from(NAMES), st.booleans())
def test_order_makes_no_difference(listed: list[Hints], name: str, closest: bool) -> None:
    made = policy(name, machine(numas=3, cores=3), closest=closest)
    found = {merge(made, some) for some in itertools.permutations(listed)}
    assert len(found) == 1
    reversed_hints = [{key: hints[::-1] for key, hints in one.items()} for one in listed]
    assert merge(made, reversed_hints) in found
    assert found == {_walked(made, listed)}


def _walked(made: TopologyPolicy, listed: list[Hints]) -> tuple[Hint, bool]:
    """The same by every combination of hints, one by one."""
    every = [hints or (Hint(None, False),) for one in listed for hints in (one.values() or [(Hint(None, True),)])]
    if made.name == "single-numa-node":
        every = [
            tuple(h for h in hints if h.preferred and (not h.affinity or h.affinity.bit_count() == 1))
            for hints in every
        ]
    most = max([min((h.affinity.bit_count() for h in hints if h.affinity), default=0) for hints in every], default=0)
    best = Hint(made.everywhere, False)
    ranks = []
    for combo in itertools.product(*every):
        named = [one.affinity for one in combo if one.affinity is not None]
        mask = made.everywhere
        for one in named:
            mask &= one
        preferred = all(one.preferred for one in combo) and len(set(named)) <= 1
        if mask:
            count = mask.bit_count()
            distance = 0.0
            if made.options.closest and made.name != "single-numa-node":
                pairs = [made.nodes[a].distances[b] for a in nodes_of(mask) for b in nodes_of(mask)]
                distance = sum(pairs) / len(pairs)
            near = (0, 0) if preferred else (1, most - count) if count <= most else (2, 0)
            ranks.append(((near, count, distance, mask), Hint(mask, preferred)))
    if ranks:
        best = min(ranks, key=lambda entry: entry[0])[1]
    if made.name == "single-numa-node" and best.affinity == made.everywhere:
        best = Hint(None, best.preferred)
    return best, made.name == "best-effort" or best.preferred


# --- with CPUs


def run(name: str, scope: str, pod_asks: tuple[str, ...], assigned: CpuState | None = None) -> AdmissionResult:
    static = cpus.static_policy(DUAL, 2, frozenset(), CpuOptions())
    state = ManagerState(cpus.checked(static, assigned or CpuState()))
    policies = Policies(static, policy(name, scope=scope))
    return admit_pod(policies, state, guaranteed("u", *pod_asks), lambda pod, container, nodes: {})


def test_containers_each_on_one_node_or_the_pod_as_a_whole() -> None:
    # 4 CPUs are free on node 0 (2 are reserved), 6 on node 1.
    apart = run("single-numa-node", "container", ("4", "6")).state.cpus.assignments
    assert {DUAL.by_id[cpu].numa for cpu in apart["u", "c0"]} == {0}
    assert {DUAL.by_id[cpu].numa for cpu in apart["u", "c1"]} == {1}
    together = run("single-numa-node", "pod", ("4", "6"))
    assert together.refusal == Refusal("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
    assert "topologyManagerPolicy single-numa-node by pod" in together.detail
    assert together.counts.topology_errors == 1 and together.counts.unaligned["pod", "numa_node"] == 1
    whole = run("single-numa-node", "pod", ("2", "4")).state.cpus
    assert {DUAL.by_id[cpu].numa for has in whole.assignments.values() for cpu in has} == {1}
    assert run("best-effort", "pod", ("4", "6")).refusal is None


def test_restricted_takes_two_nodes_only_where_one_would_never_do() -> None:
    assert run("restricted", "container", ("8",)).refusal is None
    crowded = CpuState(DUAL.all - {1, 2, 7, 8}, {("v", "c"): frozenset({1, 2, 7, 8})})
    assert run("restricted", "container", ("5",), crowded).refusal is not None
    assert run("best-effort", "container", ("5",), crowded).refusal is None


# --- with devices


GPU = "example.com/gpu"
PLUGIN = RegisteredPlugin(
    {f"g{node}{one}": Device(f"g{node}{one}", True, (node,)) for node in (0, 1) for one in (0, 1)}, True
)


def asking(*counts: int) -> list[Json]:
    return [container(f"c{index}", resources={"limits": {GPU: str(count)}}) for index, count in enumerate(counts)]


def test_hints_of_devices() -> None:
    wanted = pod(*asking(2, 1), meta={"uid": "u"})
    first, second = wanted.spec["containers"]
    assert device_hints(wanted, first, {}, {GPU: PLUGIN}, (0, 1)) == {
        GPU: hints_on(((0,), True), ((1,), True), ((0, 1), False))
    }
    assert device_hints(wanted, None, {}, {GPU: PLUGIN}, (0, 1)) == {GPU: hints_on(((0, 1), True))}
    allocations = {AllocationKey("v", "c", GPU): DeviceAllocation(frozenset({"g00"}))}
    beside = device_hints(wanted, first, allocations, {GPU: PLUGIN}, (0, 1))
    assert beside == {GPU: hints_on(((1,), True), ((0, 1), False))}
    assert device_hints(wanted, second, allocations, {GPU: PLUGIN}, (0, 1))[GPU][0] == Hint(1, True)
    own = {AllocationKey("u", "c0", GPU): DeviceAllocation(frozenset({"g00", "g01"}))}
    assert device_hints(wanted, first, own, {GPU: PLUGIN}, (0, 1)) == {GPU: hints_on(((0,), True), ((0, 1), False))}
    assert device_hints(pod(*asking(5)), pod(*asking(5)).spec["containers"][0], {}, {GPU: PLUGIN}, (0, 1)) == {GPU: ()}
    nowhere = RegisteredPlugin({"x": Device("x")}, True)
    assert device_hints(wanted, first, {}, {GPU: nowhere}, (0, 1)) == {}


def test_candidates_on_the_chosen_nodes() -> None:
    candidates = Candidates(frozenset(), frozenset(PLUGIN.devices), 2)
    assert with_affinity(candidates, PLUGIN, 2).available == {"g10", "g11"}
    assert with_affinity(candidates, PLUGIN, None) == candidates
    more = with_affinity(Candidates(frozenset(), frozenset(PLUGIN.devices), 3), PLUGIN, 2)
    assert more == Candidates(frozenset({"g10", "g11"}), frozenset({"g00", "g01"}), 1)


def test_masks() -> None:
    assert list(masks([2, 0])) == [1, 4, 5]
    assert nodes_of(5) == (0, 2)
    assert width(4) < width(3)
    assert width(1) < width(4)
