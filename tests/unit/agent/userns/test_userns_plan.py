"""Which IDs a pod gets: where they come from, that no two pods share any, and what a file may say of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.userns import plan
from agent.userns.model import UNIT, IdRange, UserNamespaceSettings
from nodelib.errors import Invalid, Permanent
from nodelib.json_values import Json
from tests.builders.pods import pod

DEFAULT = plan.default_pool(UNIT)
LINE = "0: kubelet 65536 7208960\n"


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        pytest.param([], 1, id="the first"),
        pytest.param([(1, 1)], 2, id="the next"),
        pytest.param([(2, 1), (1, 1), (4, 1)], 3, id="a gap"),
        pytest.param([(3, 4), (1, 2)], 7, id="behind a pod with more IDs, of another configuration"),
        pytest.param([(0, 3)], 3, id="behind one that begins before the pool"),
    ],
)
def test_the_lowest_free_range(taken: list[tuple[int, int]], expected: int) -> None:
    held = [IdRange(first * UNIT, count * UNIT) for first, count in taken]
    assert plan.free_range(DEFAULT, UNIT, held) == IdRange(expected * UNIT, UNIT)


def test_a_pool_ends() -> None:
    pool = IdRange(UNIT, 2 * UNIT)
    assert plan.free_range(pool, UNIT, [IdRange(UNIT, UNIT)]) == IdRange(2 * UNIT, UNIT)
    assert plan.free_range(pool, UNIT, [IdRange(UNIT, UNIT), IdRange(2 * UNIT, UNIT)]) is None
    assert plan.free_range(IdRange(2**32 - UNIT, UNIT), UNIT, []) is None, "the kernel maps no ID 4294967295"


@given(
    st.sampled_from([UNIT, 2 * UNIT, 3 * UNIT]),
    st.integers(1, 30),
    st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=120),
)
def test_no_two_pods_ever_share_an_id(length: int, places: int, moves: list[tuple[bool, int]]) -> None:
    """Pods come and go; some have ranges of an earlier configuration, with other lengths."""
    pool = IdRange(length, places * length)
    held = {"earlier": IdRange(4 * UNIT, UNIT), "wider": IdRange(8 * UNIT, 5 * UNIT)}
    for comes, number in moves:
        if not comes:
            held.pop(f"pod {number}", None)
            continue
        found = plan.free_range(pool, length, held.values())
        free = [
            one
            for one in (IdRange(pool.first + place * length, length) for place in range(places))
            if not any(one.overlaps(other) for other in held.values())
        ]
        assert found == (free[0] if free else None)
        if found is not None and f"pod {number}" not in held:
            assert pool.first <= found.first and found.end <= pool.end
            held[f"pod {number}"] = found


@pytest.mark.parametrize(
    ("users", "groups", "problem"),
    [
        pytest.param(LINE, LINE, "", id="as documented"),
        pytest.param(LINE, LINE.replace("65536", "131072"), "other subordinate users", id="groups differ"),
        pytest.param("", "", "one range", id="none"),
        pytest.param(LINE * 2, LINE * 2, "one range", id="two"),
        pytest.param("0: kubelet 65536\n", "0: kubelet 65536\n", "one range", id="short"),
        pytest.param("0: kubelet -1 x\n", "0: kubelet -1 x\n", "one range", id="no numbers"),
    ],
)
def test_what_getsubids_prints(users: str, groups: str, problem: str) -> None:
    if not problem:
        assert plan.subordinate_pool(users, groups) == IdRange(65536, 7208960)
        return
    with pytest.raises(Invalid, match=problem) as refusal:
        plan.subordinate_pool(users, groups)
    assert "/etc/subuid" in refusal.value.action


@pytest.mark.parametrize(
    ("pool", "settings", "problem"),
    [
        pytest.param(IdRange(UNIT, 110 * UNIT), UserNamespaceSettings(), "", id="exactly enough"),
        pytest.param(DEFAULT, UserNamespaceSettings(), "", id="the default"),
        pytest.param(IdRange(UNIT, 109 * UNIT), UserNamespaceSettings(), "109 pods", id="too few"),
        pytest.param(IdRange(UNIT, 110 * UNIT), UserNamespaceSettings(max_pods=111), "110 pods", id="more pods"),
        pytest.param(IdRange(0, 200 * UNIT), UserNamespaceSettings(), "pods can have 65536", id="the node's own"),
        pytest.param(IdRange(UNIT, 1 << 32), UserNamespaceSettings(), "pods can have 65536", id="beyond all IDs"),
        pytest.param(IdRange(100000, 200 * UNIT), UserNamespaceSettings(), "multiples", id="not aligned"),
        pytest.param(IdRange(UNIT, 110 * UNIT + 1), UserNamespaceSettings(), "multiples", id="length not aligned"),
        pytest.param(IdRange(UNIT, 999 * UNIT), UserNamespaceSettings(2 * UNIT), "multiples", id="of more IDs"),
        pytest.param(plan.default_pool(1 << 30), UserNamespaceSettings(1 << 30), "2 pods", id="too many for each"),
    ],
)
def test_a_pool_is_checked(pool: IdRange, settings: UserNamespaceSettings, problem: str) -> None:
    if not problem:
        plan.check_pool(pool, settings)
        return
    with pytest.raises(Invalid, match=problem):
        plan.check_pool(pool, settings)


def test_a_file_as_upstream_writes_it() -> None:
    text = (
        '{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],'
        '"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}'
    )
    assert plan.text_of(IdRange(131072, UNIT)) == text
    assert plan.range_in(text) == IdRange(131072, UNIT)


def mapping(**changed: object) -> Json:
    return {"hostId": UNIT, "containerId": 0, "length": UNIT, **changed}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param([], id="a list"),
        pytest.param({}, id="empty"),
        pytest.param({"uidMappings": [mapping()]}, id="no groups"),
        pytest.param({"uidMappings": [mapping()] * 2, "gidMappings": [mapping()] * 2}, id="two"),
        pytest.param({"uidMappings": [mapping()], "gidMappings": [mapping(hostId=2 * UNIT)]}, id="groups differ"),
        *(
            pytest.param({"uidMappings": [one], "gidMappings": [one]}, id=name)
            for name, one in {
                "the node's root": mapping(hostId=0),
                "in the middle": mapping(hostId=UNIT + 1),
                "negative": mapping(hostId=-UNIT),
                "not root": mapping(containerId=1),
                "nothing": mapping(length=0),
                "one": mapping(length=1),
                "too many": mapping(length=1 << 32),
                "the last": mapping(hostId=2**32 - UNIT),
                "a text": mapping(hostId="65536"),
                "a truth": mapping(hostId=True),
                "a fraction": mapping(length=65536.0),
                "null": mapping(containerId=None),
            }.items()
        ),
    ],
)
def test_a_file_that_no_kubelet_wrote(content: object) -> None:
    with pytest.raises(Invalid):
        plan.range_in(json.dumps(content))


@given(st.text(max_size=60) | st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists).map(json.dumps))
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(Invalid):
        plan.range_in(text)


@pytest.mark.parametrize("name", ["hostNetwork", "hostPID", "hostIPC"])
def test_own_users_do_not_go_with_the_nodes_other_namespaces(name: str) -> None:
    with pytest.raises(Invalid, match=f"does not go with {name}: true"):
        spec: Json = {"hostUsers": False, name: True}
        plan.check(pod(**spec), "", {""})
    assert plan.contradictions({"hostUsers": False, name: True}) == [name]
    assert plan.contradictions({"hostUsers": True, name: True}) == plan.contradictions({name: True}) == []


def test_the_runtimes_handler_must_know_user_namespaces() -> None:
    plan.check(pod(hostUsers=False), "kata", {"kata"})
    with pytest.raises(Permanent, match="runtime does not support user namespaces") as refusal:
        plan.check(pod(hostUsers=False), "", {"kata"})
    assert (refusal.value.obj, "runc 1.2" in refusal.value.action) == ("pod shop/web", True)
