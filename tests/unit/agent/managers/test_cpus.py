"""Which containers get exclusive CPUs, and that no other container runs on them."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.common.model.pods import Pod
from agent.common.model.refusal import Refusal
from agent.managers.model.cpus import CpuTopology, format_cpus
from agent.managers.plan import cpus
from agent.managers.plan.admission import (
    AdmissionResult,
    ManagerState,
    Policies,
    admit_pod,
    release_pods,
    resize_refusal,
)
from agent.managers.plan.checkpoint import decode_cpus, encode_cpus
from agent.managers.plan.cpus import CpuPolicy, CpuState
from agent.managers.plan.memory_policy import MemoryPolicy
from agent.managers.plan.options import CpuOptions
from nodelib.errors import Invalid
from nodelib.json_values import Json, compact
from tests.builders.pods import container, pod
from tests.unit.agent.managers.machines import CACHES, DUAL, QUAD_NUMA, SMT, TWO, asks, guaranteed


def policy(topology: CpuTopology, reserve: float = 1, **options: bool) -> CpuPolicy:
    return cpus.static_policy(topology, reserve, frozenset(), CpuOptions(**options))


def fresh(policy: CpuPolicy) -> ManagerState:
    return ManagerState(cpus.checked(policy, CpuState()))


def nowhere(pod: Pod, container: Json | None, nodes: Collection[int]) -> dict[str, tuple[()]]:
    return {}


def run(policy: CpuPolicy, state: ManagerState, pod: Pod) -> AdmissionResult:
    return admit_pod(Policies(policy), state, pod, nowhere)


def given_to(result: AdmissionResult) -> dict[str, str]:
    return {name: format_cpus(has) for (_, name), has in result.state.cpus.assignments.items()}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(guaranteed("u", "2"), {"c0": "1,5"}, id="a core"),
        pytest.param(guaranteed("u", "1", "2"), {"c0": "4", "c1": "1,5"}, id="a thread and a core"),
        pytest.param(guaranteed("u", "1500m"), {}, id="not whole"),
        pytest.param(guaranteed("u", "500m", "1"), {"c1": "4"}, id="one of two is whole"),
        pytest.param(guaranteed("u", "2000m"), {"c0": "1,5"}, id="whole in thousandths"),
        pytest.param(guaranteed("u", "2", inits=("2",)), {"i0": "1,5", "c0": "1,5"}, id="an init container's again"),
        pytest.param(
            guaranteed("u", "1", inits=("3",)), {"i0": "1,4-5", "c0": "4"}, id="a part of an init container's again"
        ),
        pytest.param(guaranteed("u", "2", sidecars=("2",)), {"s0": "1,5", "c0": "2,6"}, id="a sidecar keeps its own"),
        pytest.param(
            guaranteed("u", "2", resources={"requests": {"cpu": "2", "memory": "1Gi"}}), {}, id="pod-level resources"
        ),
        pytest.param(pod(container("c0", resources={"requests": {"cpu": "2"}})), {}, id="burstable"),
        pytest.param(pod(), {}, id="nothing asked for"),
    ],
)
def test_what_a_pod_gets(pod: Pod, expected: dict[str, str]) -> None:
    result = run(policy(SMT), fresh(policy(SMT)), pod)
    assert result.refusal is None
    assert given_to(result) == expected


def test_a_second_pod_that_does_not_fit() -> None:
    static = policy(TWO)
    first = run(static, fresh(static), guaranteed("one", "1"))
    second = run(static, first.state, guaranteed("two", "1"))
    text = "Allocate failed due to not enough cpus available to satisfy request: requested=1, available=0"
    assert second.refusal == Refusal("UnexpectedAdmissionError", f"{text}, which is unexpected")
    assert second.state == first.state
    assert "1 exclusive CPUs asked for, 0 free (none of 1; reserved 0)" in second.detail
    assert (second.counts.cpu_requests, second.counts.cpu_errors) == (1, 1)
    freed = release_pods(first.state, ["one"])
    assert run(static, freed, guaranteed("two", "1")).refusal is None


def test_asking_again_changes_nothing() -> None:
    static = policy(SMT)
    first = run(static, fresh(static), guaranteed("one", "2", inits=("2",)))
    assert run(static, first.state, guaranteed("one", "2", inits=("2",))).state == first.state


@pytest.mark.parametrize(
    ("count", "text"),
    [
        ("1", "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"),
        (
            "8",
            "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, requested CPUs = 8, "
            "CPUs per core = 2",
        ),
    ],
)
def test_whole_cores_only(count: str, text: str) -> None:
    static = policy(SMT, full_cores=True)
    assert run(static, fresh(static), guaranteed("u", count)).refusal == Refusal("SMTAlignmentError", text)
    fits = run(static, fresh(static), guaranteed("u", "2"))
    assert fits.counts.aligned["container", "physical_cpu"] == 1


def test_strict_reservation_keeps_the_pool_off_what_is_reserved() -> None:
    assert fresh(policy(SMT, 2, strict=True)).cpus.shared == SMT.all - {0, 4}
    assert fresh(policy(SMT, 2)).cpus.shared == SMT.all


def test_reservation() -> None:
    assert policy(SMT, 0.3).reserved == {0}
    assert policy(SMT, 2).reserved == {0, 4}
    chosen = cpus.static_policy(SMT, 2, frozenset({1, 2}), CpuOptions())
    assert chosen.reserved == {1, 2}
    assert chosen.reserved_cores == {1, 2, 5, 6}
    for reserve, text in ((0, "to be greater than zero"), (9, r"\(size of  did not equal 9\)")):
        with pytest.raises(Invalid, match=text):
            policy(SMT, reserve)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (CpuState(frozenset(), {("u", "c"): frozenset({1})}), "default cpuset cannot be empty"),
        (CpuState(frozenset({1, 2})), 'not all reserved cpus: "0" are present in defaultCpuSet: "1-2"'),
        (
            CpuState(TWO.all, {("u", "c"): frozenset({1})}),
            'pod: u, container: c cpuset: "1" overlaps with default cpuset "0-1"',
        ),
        (
            CpuState(frozenset({0}), {("u", "c"): frozenset({7})}),
            'current set of available CPUs "0-1" doesn\'t match with CPUs in state "0,7"',
        ),
    ],
)
def test_a_state_that_cannot_be(state: CpuState, text: str) -> None:
    with pytest.raises(Invalid) as refused:
        cpus.checked(policy(TWO), state)
    assert refused.value.message == text


# --- the file


STATE = CpuState(
    frozenset({0, 2, 3}), {("u1", "b"): frozenset({1}), ("u1", "a"): frozenset({4, 5}), ("u0", "z"): frozenset({7})}
)


def test_the_file_has_upstreams_content_and_checksums() -> None:
    text = encode_cpus(STATE)
    # 3544603080: what Go's dump of the struct hashes to.
    entries = '{"u0":{"z":"7"},"u1":{"a":"4-5","b":"1"}}'
    assert text.startswith(
        f'{{"policyName":"static","defaultCpuSet":"0,2-3","entries":{entries},"checksum":3544603080,"data":"'
    )
    assert decode_cpus(text) == STATE
    assert encode_cpus(CpuState(frozenset({0, 1}))).startswith(
        '{"policyName":"static","defaultCpuSet":"0-1","checksum":1636926438,'
    )


def test_files_of_older_kubelets() -> None:
    shown = {
        "policyName": "static",
        "defaultCpuSet": "0,2-3",
        "entries": {"u0": {"z": "7"}, "u1": {"a": "4-5", "b": "1"}},
    }
    for checksum in (3544603080, 0):
        assert decode_cpus(compact({**shown, "checksum": checksum})) == STATE


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "this is not a checkpoint"),
        ("[]", "this is not a checkpoint"),
        (encode_cpus(STATE).replace("0,2-3", "0,2-4"), "checkpoint is corrupted"),
        ('{"policyName":"static","defaultCpuSet":"0-1","checksum":7}', "checkpoint is corrupted"),
        (encode_cpus(CpuState(), "none"), 'configured policy "static" differs from state checkpoint policy "none"'),
        (
            '{"policyName":"static","defaultCpuSet":"x","checksum":0}',
            "could not parse default CPU set \"x\": 'x' is neither a CPU nor a range of CPUs",
        ),
    ],
)
def test_an_invalid_file_is_refused(text: str, problem: str) -> None:
    with pytest.raises(Invalid) as refused:
        decode_cpus(text)
    assert problem in refused.value.message


# --- whatever is asked for, in whatever order


@given(st.data())
def test_never_two_owners_never_an_empty_pool_and_all_cpus_return(data: st.DataObject) -> None:
    topology = data.draw(st.sampled_from([TWO, SMT, DUAL, CACHES, QUAD_NUMA]))
    flags = data.draw(
        st.sampled_from(
            [dict[str, bool](), {"full_cores": True}, {"across_numa": True}, {"by_uncore": True}, {"strict": True}]
        )
    )
    static = policy(topology, data.draw(st.sampled_from([0.5, 1])), **flags)
    state = start = fresh(static)
    alive: set[str] = set()
    for number in range(data.draw(st.integers(0, 12))):
        if data.draw(st.booleans()) and alive:
            gone = data.draw(st.sampled_from(sorted(alive)))
            alive.discard(gone)
            state = release_pods(state, [gone])
        else:
            counts = data.draw(st.lists(st.sampled_from(["1", "2", "3", "500m"]), min_size=1, max_size=3))
            inits = data.draw(st.lists(st.sampled_from(["1", "4"]), max_size=2))
            sidecars = data.draw(st.lists(st.sampled_from(["1", "2"]), max_size=1))
            uid = f"u{number}"
            result = run(static, state, guaranteed(uid, *counts, inits=tuple(inits), sidecars=tuple(sidecars)))
            state = result.state
            if result.refusal is None:
                alive.add(uid)
        _sound(static, state.cpus)
        assert decode_cpus(encode_cpus(state.cpus)) == state.cpus
    assert release_pods(state, alive) == start


def _sound(static: CpuPolicy, state: CpuState) -> None:
    assert static.options.strict or static.reserved <= state.shared
    by_pod: dict[str, set[int]] = {}
    for (uid, name), has in state.assignments.items():
        assert not has & state.shared
        assert not has & static.reserved
        by_pod.setdefault(uid, set()).update(has)
        if name[0] != "i":  # what runs side by side
            others = [
                also
                for (other, one), also in state.assignments.items()
                if other == uid and one[0] != "i" and one != name
            ]
            assert not has & frozenset[int]().union(*others)
    owners = [cpu for has in by_pod.values() for cpu in has]
    assert len(owners) == len(set(owners))
    everything = static.allocatable if static.options.strict else static.topology.all
    assert state.shared.union(owners) == everything
    cpus.checked(static, state)


# --- resize


def test_resizes_of_exclusive_resources_are_infeasible() -> None:
    before, cpu, memory = guaranteed("u", "1"), guaranteed("u", "2"), guaranteed("u", "1")
    memory.spec["containers"][0]["resources"] = asks("1", "128Mi")
    text = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
    static, static_memory = Policies(policy(TWO)), Policies(memory=MemoryPolicy((), {}))
    detail = "guaranteed_pod_cpu_manager_static_policy"
    assert resize_refusal(cpu, before, static) == Refusal("Infeasible", text, detail)
    assert resize_refusal(cpu, before, Policies()) is None
    assert resize_refusal(cpu, before, static_memory) is None
    assert resize_refusal(memory, before, static) is None
    text = 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'
    detail = "guaranteed_pod_memory_manager_static_policy"
    assert resize_refusal(memory, before, static_memory) == Refusal("Infeasible", text, detail)
    loose = pod(container(resources={"requests": {"cpu": "1"}}))
    tight = pod(container(resources={"requests": {"cpu": "2"}}))
    assert resize_refusal(tight, loose, static) is None


def test_hints_of_a_pod_that_has_its_cpus_already() -> None:
    static = policy(DUAL)
    first = run(static, fresh(static), guaranteed("u", "2"))
    where = cpus.hints(static, first.state.cpus, ("u", "c0"), 2, frozenset())
    assert [one.affinity for one in where["cpu"] if one.preferred] == [1]
    assert cpus.hints(static, first.state.cpus, ("u", "c0"), 4, frozenset()) == {"cpu": ()}
