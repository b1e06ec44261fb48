"""FNV-1a against the test vectors of its authors."""

from __future__ import annotations

import pytest

from nodelib.fnv import fnv1a


@pytest.mark.parametrize(("data", "expect"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)])
def test_as_the_authors_give_it(data: bytes, expect: int) -> None:
    assert fnv1a(data) == expect
