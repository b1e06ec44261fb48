"""Mount options: a few known ones, and nothing that could harm the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csi.model import Image, Mode
from csi.plan import access
from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused

IMAGE = Image("vol-0", "a", 1 << 30, Mode.MOUNT, "ext4", "", 1)


def capability(*flags: str, mode: int = 1, fs_type: str = "") -> Json:
    return {"mount": {"fs_type": fs_type, "mount_flags": list(flags)}, "access_mode": {"mode": mode}}


@pytest.mark.parametrize(
    ("flags", "number", "data"),
    [
        ((), 0, "errors=remount-ro"),
        (("noatime", "nosuid"), 1024 | 2, "errors=remount-ro"),
        (("noatime,nodev",), 1024 | 4, "errors=remount-ro"),
        (("ro", "rw"), 0, "errors=remount-ro"),
        (("discard", "data=journal"), 0, "errors=remount-ro,discard,data=journal"),
        (("defaults",), 0, "errors=remount-ro"),
    ],
)
def test_options(flags: tuple[str, ...], number: int, data: str) -> None:
    found = access.of(capability(*flags), IMAGE)
    assert (found.flags, found.data, found.read_only) == (number, data, False)


@pytest.mark.parametrize(
    "option", ["errors=panic", "journal_path=/dev/sda", "bind", "remount", "loop=/etc", "x" * 9999]
)
def test_options_that_are_refused(option: str) -> None:
    with pytest.raises(Refused, match="not allowed") as raised:
        access.of(capability(option), IMAGE)
    assert raised.value.code == "INVALID_ARGUMENT" and len(raised.value.message) < 200


@given(st.lists(st.text(max_size=20), max_size=5))
def test_nothing_unknown_reaches_the_kernel(flags: list[str]) -> None:
    try:
        found = access.of(capability(*flags), IMAGE)
    except Refused:
        return
    assert all(part == "errors=remount-ro" or part in flags for part in found.data.split(","))


def test_a_clone_of_xfs_may_have_the_uuid_of_its_source() -> None:
    assert "nouuid" in access.of(capability(), replace(IMAGE, fs_type="xfs")).data


@pytest.mark.parametrize(("mode", "read_only", "expected"), [(1, False, False), (1, True, True), (2, False, True)])
def test_read_only(mode: int, read_only: bool, expected: bool) -> None:
    assert access.of(capability(mode=mode), IMAGE, read_only=read_only).read_only is expected


def test_a_volume_is_used_as_it_was_made() -> None:
    with pytest.raises(Refused, match="made for mount"):
        access.of({"block": {}, "access_mode": {"mode": 1}}, IMAGE)
    with pytest.raises(Refused, match="has ext4"):
        access.of(capability(fs_type="xfs"), IMAGE)
