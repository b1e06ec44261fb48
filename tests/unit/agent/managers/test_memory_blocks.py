"""Which NUMA nodes the memory of a container is assigned on, and that released memory is free again."""

from __future__ import annotations

import time
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.common.model.pods import Pod
from agent.common.model.refusal import Refusal
from agent.managers.model.cpus import CpuTopology
from agent.managers.model.memory_blocks import Block, MemoryState, MemoryTable, NumaState
from agent.managers.plan import memory_blocks, memory_hints
from agent.managers.plan.admission import (
    MOST_CONTAINERS,
    AdmissionResult,
    ManagerState,
    Policies,
    admit_pod,
    release_init_memory,
    release_pods,
)
from agent.managers.plan.memory_checkpoint import decode_memory, encode_memory
from agent.managers.plan.memory_policy import MemoryPolicy, checked, first_state, memory_policy
from agent.managers.plan.options import TopologyOptions
from agent.managers.plan.topology import topology_policy
from nodelib.errors import Invalid
from tests.builders.pods import container, pod
from tests.unit.agent.managers.machines import GI, asks, machine

PAIR = machine(sockets=2, numas=2, cores=4)  # 4 GiB on each node
ONE_KEPT = ((0, {"memory": GI}),)


def policy(topology: CpuTopology = PAIR) -> MemoryPolicy:
    return memory_policy(topology.nodes, ONE_KEPT, {"memory": Decimal(GI), "cpu": Decimal(1)})


def fresh(made: MemoryPolicy) -> ManagerState:
    return ManagerState(memory=first_state(made))


def asking(uid: str, *sizes: str, inits: tuple[str, ...] = ()) -> Pod:
    mains = [container(f"c{index}", resources=asks("500m", size)) for index, size in enumerate(sizes)]
    first = [container(f"i{index}", resources=asks("500m", size)) for index, size in enumerate(inits)]
    return pod(*mains, meta={"uid": uid, "name": uid}, initContainers=first)


def run(state: ManagerState, pod: Pod, name: str = "none", scope: str = "container") -> AdmissionResult:
    made = policy()
    topology = topology_policy(name, scope, PAIR.nodes, TopologyOptions())
    return admit_pod(Policies(None, topology, made), state, pod, lambda pod, container, nodes: {})


def nodes(result: AdmissionResult) -> dict[str, tuple[int, ...]]:
    return {name: blocks[0].nodes for (_, name), blocks in result.state.memory.assignments.items()}


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param(("2Gi",), {"c0": (0,)}, id="the first node that has it"),
        pytest.param(("4Gi",), {"c0": (1,)}, id="the node where nothing is kept back"),
        pytest.param(("2Gi", "2Gi"), {"c0": (0,), "c1": (1,)}, id="one each"),
        pytest.param(("6Gi",), {"c0": (0, 1)}, id="both together"),
    ],
)
def test_where(sizes: tuple[str, ...], expected: dict[str, tuple[int, ...]]) -> None:
    result = run(fresh(policy()), asking("u", *sizes))
    assert result.refusal is None
    assert nodes(result) == expected


def test_a_node_serves_alone_or_in_a_group_and_never_both() -> None:
    first = run(fresh(policy()), asking("one", "1Gi")).state
    second = run(first, asking("two", "6Gi"))
    text = "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
    reason = Refusal("UnexpectedAdmissionError", f"Allocate failed due to [memorymanager] {text}, which is unexpected")
    assert second.refusal == reason
    assert "6Gi asked for, free: node 0: 2Gi, node 1: 4Gi" in second.detail
    assert (second.counts.memory_requests, second.counts.memory_errors) == (1, 1)
    both = run(fresh(policy()), asking("one", "5Gi")).state
    assert run(both, asking("two", "1Gi")).state.memory.assignments["two", "c0"][0].nodes == (0, 1)
    # 2 GiB are left on the two together.
    assert run(both, asking("two", "3Gi")).refusal is not None


def test_pods_that_are_not_guaranteed_get_no_numa_memory() -> None:
    loose = pod(container("c0", resources={"requests": {"memory": "1Gi"}}))
    assert run(fresh(policy()), loose).state == fresh(policy())
    assert memory_hints.requested(asking("u", "1Gi"), asking("u", "1Gi").spec["containers"][0]) == {"memory": GI}


def test_with_the_topology_manager() -> None:
    wide = run(fresh(policy()), asking("u", "6Gi"), "single-numa-node")
    assert wide.refusal == Refusal("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
    assert nodes(run(fresh(policy()), asking("u", "6Gi"), "restricted")) == {"c0": (0, 1)}
    together = run(fresh(policy()), asking("u", "2Gi", "2Gi"), "single-numa-node", "pod")
    assert nodes(together) == {"c0": (1,), "c1": (1,)}


def test_memory_of_init_containers_is_reused_by_later_ones() -> None:
    result = run(fresh(policy()), asking("u", "3Gi", inits=("2Gi", "1Gi")))
    state = result.state.memory
    assert state.assignments["u", "c0"] == (Block((0,), "memory", 3 * GI),)
    assert state.nodes[0].tables["memory"].reserved == 3 * GI
    # All that the containers have together is what the pod has.
    assert sum(blocks[0].size for blocks in state.assignments.values()) == 3 * GI
    assert checked(policy(), state) == state
    running = release_init_memory(result.state, asking("u", "3Gi", inits=("2Gi", "1Gi")), "c0")
    assert list(running.memory.assignments) == [("u", "c0")]
    assert release_pods(running, ["u"]) == fresh(policy())


def test_a_pod_with_thousands_of_containers_is_no_endless_work() -> None:
    """Each was compared with all that end before it, on the event loop: 5 s for 1,000 of both, minutes for 5,000."""
    half = MOST_CONTAINERS // 2
    began = time.process_time()
    admitted = run(fresh(policy()), asking("most", *["1"] * half, inits=("1",) * half))
    assert admitted.refusal is None
    assert sum(block.size for (blocks,) in admitted.state.memory.assignments.values() for block in [blocks]) == half
    assert release_pods(admitted.state, {"most"}).memory == fresh(policy()).memory
    huge = asking("huge", *["1"] * 5000, inits=("1",) * 5000)
    refused = run(fresh(policy()), huge)
    assert refused.refusal is not None and "has 10000 containers" in refused.refusal.message
    assert refused.refusal.message.endswith(f"{refused.detail} at most")
    assert admit_pod(Policies(), ManagerState(), huge, lambda pod, container, nodes: {}).refusal is None
    assert time.process_time() - began < 2


def test_huge_pages_are_assigned_on_the_same_nodes() -> None:
    topology = CpuTopology(PAIR.cpus, tuple(replace(node, hugepages={2 << 20: GI}) for node in PAIR.nodes))
    made = memory_policy(topology.nodes, ONE_KEPT, {"memory": Decimal(GI)})
    state = first_state(made)
    assert state.nodes[0].tables["memory"] == MemoryTable(4 * GI, GI, 2 * GI, 0, 2 * GI)
    assert state.nodes[1].tables["hugepages-2Mi"] == MemoryTable(GI, 0, GI, 0, GI)
    resources = {side: {"cpu": "1", "memory": "3Gi", "hugepages-2Mi": "512Mi"} for side in ("requests", "limits")}
    huge = pod(container("c0", resources=resources), meta={"uid": "u"})
    result = admit_pod(Policies(memory=made), ManagerState(memory=state), huge, lambda pod, container, nodes: {})
    assert result.state.memory.assignments["u", "c0"] == (
        Block((1,), "hugepages-2Mi", GI // 2),
        Block((1,), "memory", 3 * GI),
    )
    assert memory_blocks.allocatable_blocks(state)[0] == Block((0,), "hugepages-2Mi", GI)
    assert release_pods(result.state, ["u"]).memory == state


@pytest.mark.parametrize(
    ("reserved", "kept", "text"),
    [
        (((7, {"memory": GI}),), GI, "references a NUMA node 7 that does not exist on this machine"),
        (
            ONE_KEPT,
            2 * GI,
            'the total amount "1Gi" of type "memory" is not equal to the value "2Gi" determined by Node',
        ),
        ((), 0, "you should specify the system reserved memory"),
    ],
)
def test_reservations_that_differ_are_refused(
    reserved: tuple[tuple[int, dict[str, int]], ...], kept: int, text: str
) -> None:
    with pytest.raises(Invalid, match=text):
        memory_policy(PAIR.nodes, reserved, {"memory": Decimal(kept)})


def test_states_that_cannot_be() -> None:
    made = policy()
    good = run(fresh(made), asking("u", "2Gi")).state.memory
    assert checked(made, good) == good
    assert checked(made, MemoryState()) == first_state(made)
    cases = {
        "machine state can not be empty when it has memory assignments": MemoryState({}, good.assignments),
        "the expected machine state is different from the real one": MemoryState(good.nodes, {}),
        "uses the NUMA that does not exist": MemoryState(good.nodes, {("u", "c"): (Block((9,), "memory", 1),)}),
        "uses memory resource that does not exist": MemoryState(good.nodes, {("u", "c"): (Block((0,), "x", 1),)}),
    }
    for text, state in cases.items():
        with pytest.raises(Invalid, match=text):
            checked(made, state)


def test_the_file_has_upstreams_content_and_checksums() -> None:
    memory = MemoryTable(100, 10, 90, 5, 85)
    first = {"memory": memory, "hugepages-2Mi": MemoryTable(1, 0, 1, 0, 1)}
    state = MemoryState(
        {0: NumaState(2, first, (0, 1)), 1: NumaState(0, {"memory": memory}, (1,))},
        {("u1", "a"): (Block((0, 1), "memory", 5), Block((0,), "hugepages-2Mi", 0))},
    )
    text = encode_memory(state)
    # What Go's dump of the struct hashes to.
    assert ',"checksum":2112864265,"data":' in text
    assert decode_memory(text) == state
    assert '"checksum":3940083781,' in encode_memory(MemoryState())
    old = text[: text.index(',"data":')] + "}"
    assert decode_memory(old) == state
    for wrong, problem in (
        (text.replace(r"\"free\":85", r"\"free\":84"), "corrupted"),
        (old.replace("2112", "9112"), "corrupted"),
    ):
        with pytest.raises(Invalid, match=problem):
            decode_memory(wrong)
    with pytest.raises(Invalid, match='configured policy "Static" differs from state checkpoint policy "None"'):
        decode_memory(encode_memory(MemoryState(), "None"))


@given(st.data())
def test_never_more_memory_than_there_is_and_all_of_it_is_freed(data: st.DataObject) -> None:
    made = policy()
    state = start = fresh(made)
    alive: dict[str, Pod] = {}
    for number in range(data.draw(st.integers(0, 10))):
        if data.draw(st.booleans()) and alive:
            gone = data.draw(st.sampled_from(sorted(alive)))
            del alive[gone]
            state = release_pods(state, [gone])
        else:
            sizes = data.draw(st.lists(st.sampled_from(["256Mi", "1Gi", "3Gi", "5Gi"]), min_size=1, max_size=2))
            inits = data.draw(st.lists(st.sampled_from(["512Mi", "2Gi"]), max_size=2))
            name, scope = data.draw(st.sampled_from(["none", "best-effort", "restricted"])), "container"
            wanted = asking(f"u{number}", *sizes, inits=tuple(inits))
            result = run(state, wanted, name, scope)
            state = result.state
            if result.refusal is None:
                alive[wanted.uid] = wanted
        _sound(made, state.memory)
    assert release_pods(state, list(alive)) == start


def _sound(made: MemoryPolicy, state: MemoryState) -> None:
    for node in state.nodes.values():
        table = node.tables["memory"]
        assert table.free >= 0
        assert table.reserved + table.free == table.allocatable
    given = sum(block.size for blocks in state.assignments.values() for block in blocks)
    assert given == sum(node.tables["memory"].reserved for node in state.nodes.values())
    checked(made, state)
    assert decode_memory(encode_memory(state)) == state
