"""The driver's command line."""

from __future__ import annotations

import pytest

from csi.settings import REGISTRY, ROOT, SOCKET, load_settings
from nodelib.errors import Invalid


def test_defaults() -> None:
    found = load_settings(["--hostname-override", "Node1"])
    assert (found.node, found.socket, found.registry, found.root, found.reserve) == (
        "node1",
        SOCKET,
        REGISTRY,
        ROOT,
        0.1,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--root", "here"],
        ["--endpoint", "csi.sock"],
        ["--reserve-percent", "100"],
        ["--reserve-percent", "-1"],
        ["--x"],
    ],
)
def test_mistakes_name_the_flag(words: list[str]) -> None:
    with pytest.raises(Invalid, match=words[0]):
        load_settings(words)
