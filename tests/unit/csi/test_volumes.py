"""Requests of the controller service, and answers."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csi import names, records
from csi.model import TOPOLOGY, Image, Kind, Mode
from csi.plan import volumes
from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused

MIB = 1 << 20
MOUNT: Json = {"mount": {}, "access_mode": {"mode": 1}}
BLOCK: Json = {"block": {}, "access_mode": {"mode": 1}}
IMAGE = Image(names.id_of(Kind.VOLUME, "a"), "a", 64 * MIB, Mode.MOUNT, "ext4", "", 1)


def request(**fields: object) -> Json:
    return {"name": "a", "volume_capabilities": [MOUNT], **fields}


def code(**fields: object) -> str:
    with pytest.raises(Refused) as raised:
        volumes.read_request(request(**fields))
    assert raised.value.message
    return raised.value.code


@given(st.text(max_size=200))
def test_no_name_is_part_of_a_path(name: str) -> None:
    try:
        found = names.id_of(Kind.VOLUME, name)
    except Refused as error:
        assert error.code == "INVALID_ARGUMENT"
        return
    assert re.fullmatch(r"vol-[0-9a-f]{40}", found) and names.is_id(Kind.VOLUME, found)


@given(st.text(max_size=100))
def test_every_handle_has_one_id_that_is_ours(handle: str) -> None:
    assert names.is_id(Kind.VOLUME, names.own_id(handle))
    assert names.own_id(handle) == handle or names.is_inline(names.own_id(handle))


@pytest.mark.parametrize("text", ["", "vol-", "vol-" + "g" * 40, "vol-" + "0" * 40 + "\n", "../vol-" + "0" * 40, "."])
def test_what_is_no_id(text: str) -> None:
    assert not names.is_id(Kind.VOLUME, text) and not names.is_id(Kind.SNAPSHOT, text)


@pytest.mark.parametrize("text", ["", "relative", "/a/../b", "/..", "/a\0b", "/" + "x" * 5000])
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(Refused):
        names.path(text, "target path")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": ""}, "INVALID_ARGUMENT"),
        ({"name": "é" * 65}, "INVALID_ARGUMENT"),
        ({"volume_capabilities": []}, "INVALID_ARGUMENT"),
        ({"volume_capabilities": [{"mount": {}}]}, "INVALID_ARGUMENT"),
        ({"volume_capabilities": [{"access_mode": {"mode": 1}}]}, "INVALID_ARGUMENT"),
        ({"volume_capabilities": [MOUNT, BLOCK]}, "INVALID_ARGUMENT"),
        ({"volume_capabilities": [{"mount": {}, "access_mode": {"mode": 5}}]}, "INVALID_ARGUMENT"),
        ({"volume_capabilities": [{"mount": {"fs_type": "ntfs"}, "access_mode": {"mode": 1}}]}, "INVALID_ARGUMENT"),
        ({"parameters": {"fast": "yes"}}, "INVALID_ARGUMENT"),
        ({"parameters": {"csi.storage.k8s.io/fstype": "ntfs"}}, "INVALID_ARGUMENT"),
        ({"mutable_parameters": {"iops": "1"}}, "INVALID_ARGUMENT"),
        ({"capacity_range": {"required_bytes": -1}}, "INVALID_ARGUMENT"),
        ({"capacity_range": {"required_bytes": 2, "limit_bytes": 1}}, "OUT_OF_RANGE"),
        ({"volume_content_source": {"snapshot": {"snapshot_id": ""}}}, "INVALID_ARGUMENT"),
        ({"volume_content_source": {"snapshot": {"snapshot_id": "../x"}}}, "NOT_FOUND"),
        ({"volume_content_source": {"volume": {"volume_id": "../x"}}}, "NOT_FOUND"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, dict) else "",
)
def test_what_cannot_be_had(fields: Json, expected: str) -> None:
    assert code(**fields) == expected


def test_many_nodes_are_refused_with_words() -> None:
    with pytest.raises(Refused, match="use ReadWriteOnce"):
        volumes.read_request(request(volume_capabilities=[{"mount": {}, "access_mode": {"mode": 5}}]))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, ""),
        ({"capacity_range": {"required_bytes": 64 * MIB}}, ""),
        ({"capacity_range": {"required_bytes": 65 * MIB}}, "bytes"),
        ({"capacity_range": {"limit_bytes": 63 * MIB}}, "bytes"),
        ({"volume_capabilities": [BLOCK]}, "made for mount"),
        ({"volume_capabilities": [{"mount": {"fs_type": "xfs"}, "access_mode": {"mode": 1}}]}, "ext4"),
        ({"volume_content_source": {"volume": {"volume_id": "vol-" + "0" * 40}}}, "elsewhere"),
    ],
    ids=["same", "same size", "larger", "smaller", "block", "xfs", "another source"],
)
def test_a_second_request_of_the_same_name(fields: Json, problem: str) -> None:
    found = volumes.problem_with(IMAGE, volumes.read_request(request(**fields)))
    assert problem in found and bool(found) is bool(problem)


@pytest.mark.parametrize(
    ("requisite", "here"),
    [([], True), ([{}], True), ([{"segments": {TOPOLOGY: "n1"}}], True), ([{"segments": {TOPOLOGY: "n2"}}], False)],
    ids=["anywhere", "no segments", "here", "elsewhere"],
)
def test_topology(requisite: list[Json], here: bool) -> None:
    if here:
        volumes.check_topology({"requisite": requisite}, "n1")
        return
    with pytest.raises(Refused) as raised:
        volumes.check_topology({"requisite": requisite}, "n1")
    assert raised.value.code == "RESOURCE_EXHAUSTED"


@given(st.integers(0, 40), st.integers(1, 7))
def test_pages_show_everything_once(count: int, most: int) -> None:
    found = [replace(IMAGE, id=names.id_of(Kind.VOLUME, f"n{index}")) for index in range(count)]
    shown, start = list[str](), ""
    for _ in range(count + 2):
        page, start = volumes.page(found, start, most)
        shown += [one.id for one in page]
        if not start:
            break
    assert shown == sorted(one.id for one in found)


def test_a_record_is_read_as_it_was_written() -> None:
    assert records.read(records.text(IMAGE).encode(), IMAGE.id) == IMAGE


@given(st.binary(max_size=300))
def test_a_damaged_record(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        records.read(content, IMAGE.id)


@pytest.mark.parametrize("change", ['"size":0', '"size":"1"', '"mode":"both"', '"version":2', '"id":"vol-x"'])
def test_a_record_of_something_else(change: str) -> None:
    key = change.split(":")[0]
    text = re.sub(rf'{key}:("[^"]*"|\d+)', change, records.text(IMAGE))
    with pytest.raises(ValueError, match=r".+"):
        records.read(text.encode(), IMAGE.id)


def test_the_handle_of_a_snapshot_names_its_node() -> None:
    number = names.id_of(Kind.SNAPSHOT, "s")
    handle = names.handle(Kind.SNAPSHOT, number, "node1")
    assert handle == f"{number}@node1" and len(handle) <= 128
    assert names.id_in(handle) == names.id_in(f"{number}@elsewhere") == names.id_in(number) == number
    assert names.handle(Kind.SNAPSHOT, number, "n" * 64) == number, "no label could name this node"
    assert names.handle(Kind.VOLUME, "vol-1", "node1") == "vol-1"


@pytest.mark.parametrize(
    "text", ["", "@", "@node1", "x@node1", "../@node1", f"snap-{'0' * 40}@", f"snap-{'0' * 40}@a/b"]
)
def test_what_is_no_handle_is_no_id(text: str) -> None:
    assert names.id_in(text) == text and not names.is_id(Kind.SNAPSHOT, text)
