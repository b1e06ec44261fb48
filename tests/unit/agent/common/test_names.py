"""Names that become parts of paths."""

from __future__ import annotations

from typing import Any

import pytest

from agent.common.model.pods import Pod
from agent.common.plan.names import check_names
from nodelib.errors import Invalid
from tests.builders.pods import container, pod


@pytest.mark.parametrize("name", ["web", "web.0", "a" * 253, "0"])
def test_good_names(name: str) -> None:
    made = pod(container("a-1"), meta={"name": name}, volumes=[{"name": "v"}], initContainers=[container("i")])
    check_names(made)  # raises nothing
    with pytest.raises(Invalid):
        check_names(pod(container("a-1"), meta={"name": f"{name}/.."}))


@pytest.mark.parametrize(
    ("made", "what"),
    [
        pytest.param(pod(meta={"name": "../x"}), "metadata.name", id="pod name"),
        pytest.param(pod(meta={"namespace": "a/b"}), "metadata.namespace", id="namespace"),
        pytest.param(pod(meta={"uid": ".."}), "metadata.uid", id="uid"),
        pytest.param(pod(volumes=[{"name": ".."}]), "volume name", id="volume"),
        pytest.param(pod(volumes=[{}]), "volume name None", id="no volume name"),
        pytest.param(pod(container("a/../b")), "container name", id="container"),
        pytest.param(pod(container("a\n")), "container name", id="newline at the end"),
        pytest.param(pod(ephemeralContainers=[container("UP")]), "container name", id="ephemeral"),
    ],
)
def test_bad_names(made: Pod, what: str) -> None:
    with pytest.raises(Invalid, match=what):
        check_names(made)


def test_a_list_is_no_name() -> None:
    meta: dict[str, Any] = {"name": ["x"]}
    with pytest.raises(Invalid, match=r"metadata.name \['x'\]"):
        check_names(pod(meta=meta))
