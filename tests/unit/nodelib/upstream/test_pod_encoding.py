"""A Pod in protobuf against what upstream's own v1.Pod.Marshal() made of the same JSON (tests/golden/pod)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from nodelib.errors import Invalid
from nodelib.upstream.pod_encoding import pod_encoding

_GOLDEN = Path(__file__).parents[3] / "golden/pod"


def _pod() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_GOLDEN / "pod.json").read_text())
    return found


def _plain(message: Any) -> Any:
    """What is set to something: upstream writes empty values of fields that are no pointers, too."""
    found = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            plain: Any = {key: _plain(one) if hasattr(one, "ListFields") else one for key, one in value.items()}
        elif field.is_repeated:
            plain = [_plain(one) if field.message_type is not None else one for one in value]
        else:
            plain = _plain(value) if field.message_type is not None else value
        if plain not in ("", 0, False, {}):
            found[field.name] = plain
    return found


def test_the_content_is_that_of_upstreams_encoder() -> None:
    encoding = pod_encoding()
    theirs = encoding.decode(base64.b64decode((_GOLDEN / "pod.pb.b64").read_text()))
    ours = encoding.decode(encoding.encode(_pod()))
    assert _plain(ours) == _plain(theirs)
    assert len(_plain(ours)["spec"]["containers"]) == 1


def test_what_is_set_to_nothing_is_not_unset() -> None:
    made = pod_encoding().decode(pod_encoding().encode(_pod()))
    assert made.spec.HasField("automountServiceAccountToken") and not made.spec.automountServiceAccountToken
    assert made.spec.HasField("terminationGracePeriodSeconds") and made.spec.terminationGracePeriodSeconds == 0
    assert made.spec.containers[0].securityContext.HasField("runAsUser")
    assert made.spec.volumes[0].volumeSource.HasField("emptyDir")
    assert not made.spec.HasField("hostPID") and not made.spec.HasField("runtimeClassName")


def test_times_keep_their_fractions_and_zones() -> None:
    pod = {"metadata": {"name": "a", "creationTimestamp": "2026-01-02T03:04:05.25+01:00"}}
    time = pod_encoding().decode(pod_encoding().encode(pod)).metadata.creationTimestamp
    assert (time.seconds, time.nanos) == (1767319445, 250_000_000)


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": 5}]},
        {"containers": 5},
        {"containers": ["a"]},
        {"priority": 1 << 40},
        {"nodeSelector": ["a"]},
        {"volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Gi"}, "hostPath": "x"}]},
        "text",
        {"nodeName": "\ud800"},
    ],
)
def test_values_of_another_type_are_refused_by_name(spec: Any) -> None:
    with pytest.raises(Invalid, match="a/b"):
        pod_encoding().encode({"metadata": {"namespace": "a", "name": "b"}, "spec": spec})


def test_unknown_fields_and_nulls_are_left_out() -> None:
    pod = {"metadata": {"name": "a", "tomorrow": {"x": 1}, "labels": None}, "spec": {"new": [1]}}
    assert _plain(pod_encoding().decode(pod_encoding().encode(pod))) == {"metadata": {"name": "a"}}
