"""Fields and resources of a pod as text: the cases of upstream's fieldpath_test and helpers_test."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.common.model.pod_settings import NodeContext
from agent.common.plan.downward import format_map, go_quote, pod_field, resource_field
from nodelib.errors import Invalid, NodewrightError
from tests.builders.pods import container, pod

NODE = NodeContext(allocatable={"cpu": "1900m", "memory": "3Gi", "ephemeral-storage": "10Gi"})
LABELLED = pod(meta={"labels": {"b": "2", "a": "1"}, "annotations": {"x/y": 'say "hi"\n', "empty": ""}})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("metadata.labels", 'a="1"\nb="2"', id="labels, sorted"),
        pytest.param("metadata.annotations", 'empty=""\nx/y="say \\"hi\\"\\n"', id="annotations, quoted"),
        pytest.param("metadata.labels['b']", "2", id="one label"),
        pytest.param("metadata.annotations['x/y']", 'say "hi"\n', id="one annotation, as it is"),
        pytest.param("metadata.labels['none']", "", id="label that is not there"),
    ],
)
def test_fields(path: str, expected: str) -> None:
    assert pod_field(LABELLED, path) == expected


@pytest.mark.parametrize("path", ["", "spec.nodeName", "metadata", "metadata.name['x']", "status.podIP", "a['b']"])
def test_unsupported_fields(path: str) -> None:
    with pytest.raises(Invalid, match="unsupported fieldPath"):
        pod_field(LABELLED, path)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        pytest.param("a\\b", '"a\\\\b"', id="backslash"),
        pytest.param("tab\there", '"tab\\there"', id="tab"),
        pytest.param("\x01\x7f", '"\\x01\\x7f"', id="control"),
        pytest.param("é中", '"é中"', id="printable stays"),
        pytest.param("\u200b\U000e0001", '"\\u200b\\U000e0001"', id="not printable"),
    ],
)
def test_go_quote(text: str, quoted: str) -> None:
    assert go_quote(text) == quoted


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=4))
def test_format_map_is_one_line_a_key(values: dict[str, str]) -> None:
    shown = format_map({key.replace("\n", ""): value for key, value in values.items()})
    assert len(shown.split("\n")) == max(1, len({key.replace("\n", "") for key in values}))


LIMITED = container(
    resources={
        "limits": {"cpu": "1250m", "memory": "64Mi", "hugepages-2Mi": "4Mi"},
        "requests": {"cpu": "250m", "memory": "32Mi"},
    }
)


@pytest.mark.parametrize(
    ("made", "selector", "expected"),
    [
        pytest.param(LIMITED, {"resource": "limits.cpu"}, "2", id="cpu rounds up"),
        pytest.param(LIMITED, {"resource": "limits.cpu", "divisor": "1m"}, "1250", id="cpu in milli"),
        pytest.param(LIMITED, {"resource": "requests.cpu", "divisor": "0"}, "1", id="divisor 0 is 1"),
        pytest.param(LIMITED, {"resource": "limits.memory"}, "67108864", id="memory in bytes"),
        pytest.param(LIMITED, {"resource": "limits.memory", "divisor": "1Mi"}, "64", id="memory in Mi"),
        pytest.param(LIMITED, {"resource": "requests.memory", "divisor": "1Gi"}, "1", id="memory rounds up"),
        pytest.param(LIMITED, {"resource": "limits.hugepages-2Mi"}, "4194304", id="huge pages"),
        pytest.param(container(), {"resource": "limits.memory", "divisor": "1Gi"}, "3", id="allocatable memory"),
        pytest.param(container(), {"resource": "limits.cpu", "divisor": "1m"}, "1900", id="allocatable cpu"),
        pytest.param(container(), {"resource": "limits.ephemeral-storage", "divisor": "1Gi"}, "10", id="storage"),
        pytest.param(container(), {"resource": "requests.memory"}, "0", id="requests never default"),
    ],
)
def test_resources(made: dict[str, Any], selector: dict[str, Any], expected: str) -> None:
    assert resource_field(pod(made), selector, NODE, made) == expected


def test_pod_level_limit_goes_before_allocatable() -> None:
    made = container()
    whole = pod(made, resources={"limits": {"cpu": "500m"}})
    assert resource_field(whole, {"resource": "limits.cpu", "divisor": "1m"}, NODE, made) == "500"


def test_container_by_name() -> None:
    made = pod(container("a"), LIMITED | {"name": "b"})
    assert resource_field(made, {"containerName": "b", "resource": "requests.memory", "divisor": "1Mi"}, NODE) == "32"
    with pytest.raises(Invalid, match="'c' not found"):
        resource_field(made, {"containerName": "c", "resource": "limits.cpu"}, NODE)


@given(st.text(max_size=12), st.text(max_size=6))
def test_anything_else_is_a_clear_error(resource: str, divisor: str) -> None:
    try:
        found = resource_field(pod(LIMITED), {"resource": resource, "divisor": divisor}, NODE, LIMITED)
    except NodewrightError as error:
        assert str(error)
    else:
        assert found.isdigit()
