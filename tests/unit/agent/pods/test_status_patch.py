"""What of a status is sent: which values are the same to an API server, and how long it takes to find out."""

from __future__ import annotations

import time

import pytest

from agent.pods.plan.status_patch import is_urgent, status_patch
from nodelib.json_values import Json
from tests.builders.pods import pod


def _mounts(count: int) -> list[Json]:
    return [{"name": "v", "mountPath": f"/m/{number}"} for number in range(count)]


def test_a_container_with_very_many_mounts() -> None:
    """A pod of 1 MB has room for 24,000: 0.3 s of the event loop for each of its statuses, of which a probe that comes
    and goes makes one a second."""
    shown: Json = {"name": "c", "ready": True, "lastState": {}, "state": {"running": {"startedAt": "a"}}}
    wanted = {**shown, "ready": False, "volumeMounts": _mounts(24_000)}
    shown = {**shown, "volumeMounts": _mounts(24_000)}
    began = time.thread_time()
    patch = status_patch(pod(), {"containerStatuses": [shown]}, {"containerStatuses": [wanted]})
    assert is_urgent({"containerStatuses": [shown]}, {"containerStatuses": [wanted]})
    assert time.thread_time() - began < 0.02
    assert patch is not None and patch["status"] == {"containerStatuses": [wanted]}


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ({"name": "c", "lastState": {}}, {"name": "c"}, True),
        ({"name": "c"}, {"name": "c", "state": {"running": {"startedAt": None}}}, True),
        ({"name": "c", "image": ""}, {"name": "c", "image": None, "volumeMounts": []}, True),
        ({"name": "c", "ready": False}, {"name": "c"}, False),
        ({"name": "c", "restartCount": 0}, {"name": "c"}, False),
        ({"name": "c", "volumeMounts": [{}]}, {"name": "c"}, False),
        ({"name": "c", "volumeMounts": [{"name": "a"}]}, {"name": "c", "volumeMounts": [{"name": "a", "b": ""}]}, True),
        ({"name": "c", "volumeMounts": [{"name": "a"}]}, {"name": "c", "volumeMounts": [{"name": "b"}]}, False),
        ({"name": "c", "volumeMounts": _mounts(2)}, {"name": "c", "volumeMounts": _mounts(1)}, False),
        ({"name": "c", "state": {"running": {}}}, {"name": "c", "state": "running"}, False),
    ],
)
def test_empty_members_are_no_difference(old: Json, new: Json, *, same: bool) -> None:
    for shown, wanted in ((old, new), (new, old)):
        patch = status_patch(pod(), {"containerStatuses": [shown]}, {"containerStatuses": [wanted]})
        assert (patch is None) == same


def test_a_field_that_is_not_shown_is_sent() -> None:
    assert status_patch(pod(), {}, {"phase": "Running", "podIP": None}) is not None
    assert status_patch(pod(), {"podIP": None}, {"podIP": None}) is None
