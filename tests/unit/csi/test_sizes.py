"""Sizes of volumes, and the room for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csi.model import Image, Mode, Space
from csi.plan import sizes
from nodelib.plugin_apis.errors import Refused

MIB, GIB = 1 << 20, 1 << 30
AMOUNTS = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)


@pytest.mark.parametrize(
    ("required", "limit", "mode", "fs_type", "source", "size"),
    [
        (0, 0, Mode.MOUNT, "ext4", 0, GIB),
        (0, 64 * MIB, Mode.MOUNT, "ext4", 0, 64 * MIB),
        (5 * GIB, 0, Mode.MOUNT, "ext4", 0, 5 * GIB),
        (5 * GIB + 1, 0, Mode.BLOCK, "", 0, 5 * GIB + MIB),
        (1, 0, Mode.BLOCK, "", 0, MIB),
        (1, 0, Mode.MOUNT, "ext4", 0, 8 * MIB),
        (1, 0, Mode.MOUNT, "xfs", 0, 300 * MIB),
        (GIB, 0, Mode.MOUNT, "ext4", 2 * GIB, 2 * GIB),
    ],
    ids=["nothing said", "only a limit", "exact", "whole MiB", "least block", "least ext4", "least xfs", "a clone"],
)
def test_chosen(required: int, limit: int, mode: Mode, fs_type: str, source: int, size: int) -> None:
    assert sizes.chosen(required, limit, mode, fs_type, source) == size


@pytest.mark.parametrize(
    ("required", "limit", "source"),
    [(1, 4 * MIB, 0), (GIB, GIB, 2 * GIB), (sizes.LARGEST + 1, 0, 0)],
    ids=["less than the least", "less than its source", "more than the most"],
)
def test_not_to_be_had(required: int, limit: int, source: int) -> None:
    with pytest.raises(Refused) as raised:
        sizes.chosen(required, limit, Mode.MOUNT, "ext4", source)
    assert raised.value.code == "OUT_OF_RANGE"


@given(AMOUNTS, AMOUNTS, st.sampled_from(["ext4", "xfs"]), st.integers(0, sizes.LARGEST))
def test_whatever_is_asked_for(required: int, limit: int, fs_type: str, source: int) -> None:
    """The answer fits, or there is a refusal with words."""
    try:
        required, limit = sizes.asked({"required_bytes": required, "limit_bytes": limit})
        size = sizes.chosen(required, limit, Mode.MOUNT, fs_type, source)
    except Refused as error:
        assert error.code in ("OUT_OF_RANGE", "INVALID_ARGUMENT") and error.message
        return
    assert sizes.fits(size, required, limit) and source <= size <= sizes.LARGEST and size % MIB == 0


@given(st.integers(MIB, sizes.LARGEST), AMOUNTS, AMOUNTS)
def test_a_volume_never_shrinks(size: int, required: int, limit: int) -> None:
    size -= size % MIB
    try:
        found = sizes.grown(size, *sizes.asked({"required_bytes": required, "limit_bytes": limit}))
    except Refused:
        return
    assert found >= size and sizes.fits(found, max(required, 0), max(limit, 0))


def image(number: str, size: int) -> Image:
    return Image(number, number, size, Mode.MOUNT, "ext4", "", 0)


def test_what_volumes_may_still_write_is_taken() -> None:
    space = Space(100 * GIB, 50 * GIB, {"vol-a": 4 * GIB, "snap-b": 3 * GIB})
    volumes = [image("vol-a", 10 * GIB), image("vol-c", 20 * GIB)]
    assert sizes.available(space, volumes, 0.1) == (50 - 6 - 20 - 10) * GIB


@given(st.integers(0, 1 << 50), st.integers(0, 1 << 50), st.lists(st.integers(MIB, 1 << 50), max_size=5))
def test_no_room_is_never_negative(total: int, free: int, promised: list[int]) -> None:
    volumes = [image(f"vol-{index}", size) for index, size in enumerate(promised)]
    left = sizes.available(Space(total, free, {}), volumes, 0.1)
    assert 0 <= left <= free


def test_a_refusal_says_how_much_there_is() -> None:
    with pytest.raises(Refused, match="2Gi are needed, and 1Gi are left") as raised:
        sizes.check_room(2 * GIB, GIB)
    assert raised.value.code == "RESOURCE_EXHAUSTED"
