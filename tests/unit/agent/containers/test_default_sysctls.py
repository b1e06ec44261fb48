"""defaultPodSysctls: what a pod gets without asking, and what the configuration may say."""

from __future__ import annotations

from typing import Any

import pytest

from agent.config.load import checked
from agent.containers.plan.sysctls import sysctls
from tests.builders.pods import pod

_NET, _IPC, _UTS, _USER = "net.core.somaxconn", "kernel.shmmax", "kernel.domainname", "user.max_inotify_watches"
_DEFAULTS = {_NET: "1024", "kernel/shmmax": "1", _UTS: "d", _USER: "7", "kernel.pid_max": "9"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {_NET: "1024", _IPC: "1", _UTS: "d"}, id="a usual pod"),
        pytest.param({"hostNetwork": True}, {_IPC: "1"}, id="hostNetwork"),
        pytest.param({"hostIPC": True}, {_NET: "1024", _UTS: "d"}, id="hostIPC"),
        pytest.param({"hostUsers": False}, {_NET: "1024", _IPC: "1", _UTS: "d", _USER: "7"}, id="users of its own"),
    ],
)
def test_defaults_are_for_namespaces_of_the_pods_own(spec: dict[str, Any], expected: dict[str, str]) -> None:
    """The others are the node's: one pod would set them for all."""
    assert sysctls(pod(**spec), _DEFAULTS) == expected


@pytest.mark.parametrize("name", [_NET, "net/core/somaxconn"])
def test_a_pod_that_asks_gets_what_it_asks_for(name: str) -> None:
    asks = pod(securityContext={"sysctls": [{"name": name, "value": "2048"}]})
    assert sysctls(asks, {_NET: "1024"}) == {name: "2048"}


@pytest.mark.parametrize(
    ("names", "on", "said"),
    [
        pytest.param([_NET], True, "", id="fine"),
        pytest.param([_NET], False, "must not be set while featureGates.DefaultPodSysctls is false", id="gate off"),
        pytest.param(["kernel.pid_max"], True, "it has no namespace", id="the machine's"),
        pytest.param(["Net core"], True, "is not the name of a sysctl", id="no name"),
        pytest.param([_NET, "net/core/somaxconn"], True, "is there twice", id="twice"),
    ],
)
def test_what_the_configuration_may_say(names: list[str], on: bool, said: str) -> None:
    given = {"featureGates": {"DefaultPodSysctls": on}, "defaultPodSysctls": dict.fromkeys(names, "1")}
    _, problems = checked(given)
    assert [said in problem for _, problem in problems] == ([True] if said else [])
