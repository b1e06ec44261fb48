"""Specs with some of their fields changed into anything: what hypothesis makes of a pod that uses most fields."""

from __future__ import annotations

import copy
import os
from typing import Any

from hypothesis import strategies as st

from nodelib.json_values import Json
from tests.fakes.pod_world import IMAGE

# An ordinary run has the same examples each time; NODEWRIGHT_SOAK=100 has a hundred times as many, others each time.
TIMES = int(os.environ.get("NODEWRIGHT_SOAK", "0")) or 1

# A value that the API server lets through where it stands is among these; most of them are not let through anywhere.
WORDS = ["", "x", "10m", "1Gi", "-1", "Always", "Never", "${A}", "$(B)", "/", "../..", "\u0000", "a" * 300]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(WORDS),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from(["name", "key", "x"]), st.text(max_size=3)),
)
GONE = object()
PROBE = {"httpGet": {"port": 80, "path": "/"}, "periodSeconds": 1, "failureThreshold": 1}
SPEC: Json = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 1,
    "activeDeadlineSeconds": 1000,
    "initContainers": [{"name": "first", "image": IMAGE, "restartPolicy": "Always", "startupProbe": PROBE}],
    "containers": [
        {
            "name": "main",
            "image": IMAGE,
            "command": ["sleep"],
            "env": [
                {"name": "A", "value": "b"},
                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "ports": [{"containerPort": 80, "name": "http"}],
            "resources": {"requests": {"cpu": "10m", "memory": "1Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "livenessProbe": PROBE,
            "readinessProbe": PROBE,
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}, "postStart": {"exec": {"command": ["true"]}}},
            "securityContext": {"runAsUser": 1, "capabilities": {"add": ["ALL"]}},
            "volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "x"}],
        }
    ],
    "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "c", "configMap": {"name": "c"}}],
    "readinessGates": [{"conditionType": "lb"}],
    "tolerations": [{"operator": "Exists"}],
    "securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}], "fsGroup": 1},
}


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    if isinstance(value, dict):
        found += [path for key, one in value.items() for path in paths(one, (*at, key))]
    if isinstance(value, list):
        found += [path for index, one in enumerate(value) for path in paths(one, (*at, index))]
    return found


Change = tuple[tuple[Any, ...], Any]


def changes_of(value: Any) -> st.SearchStrategy[list[Change]]:
    """One to three places of `value` and what is to stand there."""
    change = st.tuples(st.sampled_from(paths(value)), st.one_of(st.just(GONE), VALUES))
    return st.lists(change, min_size=1, max_size=3)


def changed(value: Any, changes: list[Change]) -> Any:
    spec = copy.deepcopy(value)
    for path, value in changes:
        inner: Any = spec
        try:
            for key in path[:-1]:
                inner = inner[key]
            if value is GONE:
                del inner[path[-1]]
            else:
                inner[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has taken the place away
    return spec


def typed_changes_of(value: Any) -> st.SearchStrategy[list[Change]]:
    """The same, with values of the type that stands there, and times that are times: what an API server lets pass."""
    return st.lists(st.sampled_from(paths(value)).flatmap(lambda path: _like(value, path)), min_size=1, max_size=4)


def _like(value: Any, path: tuple[Any, ...]) -> st.SearchStrategy[Change]:
    for key in path:
        value = value[key]
    if isinstance(value, bool):
        found: st.SearchStrategy[Any] = st.booleans()
    elif isinstance(value, int):
        found = st.sampled_from([-1, 0, 1, 2**31 - 1])
    elif isinstance(value, str) and not str(path[-1]).endswith(("Time", "At", "Timestamp")):
        found = st.sampled_from(["", *WORDS])
    else:
        found = st.just(type(value)()) if isinstance(value, list | dict) else st.just(GONE)
    return st.tuples(st.just(path), st.one_of(st.just(GONE), found))
