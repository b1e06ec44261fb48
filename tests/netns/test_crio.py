"""Our agent on CRI-O: pods, probes, logs, commands, stats, user namespaces, the pod network, and restarts. By hand.

`NODEWRIGHT_CRIO=DIR ./nodewright test -m soak tests/netns/test_crio.py`; DIR has crio, pinns and conmon. CRI-O is built
by nobody here: packages of the distribution or of its project have it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from nodelib.json_values import Json
from tests.builders.pods import container
from tests.netns import crio
from tests.netns.lone_node import ADDRESS, LoneNode, busy, program, running

_FOLDER = program("NODEWRIGHT_CRIO", *crio.PROGRAMS)
pytestmark = [
    pytest.mark.netns,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(_FOLDER is None, reason="NODEWRIGHT_CRIO names no folder with crio, pinns and conmon"),
]


@pytest.fixture(scope="module", params=[True, False], ids=["with its events", "without events"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneNode]:
    assert _FOLDER is not None
    with running(tmp_path_factory.mktemp("crio"), crio.SOCKET, {}) as node:
        crio.start(node, _FOLDER, events=request.param)
        node.start_agent()
        yield node


def test_probes_logs_commands_and_a_restart(node: LoneNode) -> None:
    probe = {"exec": {"command": ["test", "-d", "/tmp/web"]}, "periodSeconds": 1}
    http = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1, "initialDelaySeconds": 1, "failureThreshold": 1}
    node.put("one", busy(readinessProbe=probe, livenessProbe=http))
    status = node.ready("one")
    assert re.fullmatch(r"cri-o://[0-9a-f]{64}", status["containerID"]) and status["imageID"], status
    assert node.logs("one") == "begun\n"
    assert node.shell("one", "hostname; id -u") == "one-lone\n0\n"
    node.shell("one", "rm /tmp/web/index.html")
    again = node.until("one", lambda now: now.get("restartCount") == 1 and now.get("ready"), "restarted by its probe")
    assert again["containerID"] != status["containerID"]
    assert again["lastState"]["terminated"]["containerID"] == status["containerID"]
    assert node.logs("one", "?previous=true") == "begun\n"
    node.take("one")


def test_the_pod_network_is_ours(node: LoneNode) -> None:
    port = {"containerPort": 8080, "hostPort": 18080}
    node.put("served", busy(ports=[port]))
    node.put("asking", busy())
    for name in ("served", "asking"):
        node.ready(name)
    pods = node.pods() or {}
    address = pods["served"]["status"]["podIP"]
    assert address.startswith("10.244.7.")
    assert node.run("curl", "-s", "-m", "5", f"http://{address}:8080/") == "hello\n"
    assert node.shell("asking", f"wget -q -O- http://{address}:8080/") == "hello\n"
    assert node.shell("asking", f"wget -q -O- http://{ADDRESS}:18080/") == "hello\n"
    for name in ("served", "asking"):
        node.take(name)


def _summary(node: LoneNode, name: str) -> Any:
    text = node.ask("/stats/summary")
    pods = json.loads(text)["pods"] if text else []
    return next((one for one in pods if one["podRef"]["name"] == f"{name}-lone"), None)


def test_stats_have_the_container_and_not_the_process_beside_it(node: LoneNode) -> None:
    script = "dd if=/dev/zero of=/big bs=1M count=8 2>/dev/null; while :; do :; done"
    resources = {"limits": {"cpu": "100m", "memory": "64Mi"}, "requests": {"cpu": "50m"}}
    node.put("busy", container(script=script, resources=resources))
    node.until("busy", lambda status: status.get("ready"), "Ready")

    def counted() -> Any:
        pod = _summary(node, "busy")
        one: Any = next(iter((pod or {}).get("containers") or []), {})
        used = one.get("cpu", {}).get("usageCoreNanoSeconds"), one.get("memory", {}).get("workingSetBytes")
        return pod if all(used) and one["rootfs"].get("usedBytes", 0) >= 8 << 20 else None

    pod: Any = node.wait(counted, "CPU, memory and the writable layer are counted")
    assert [one["name"] for one in pod["containers"]] == ["main"]
    assert "rxBytes" in pod["network"]
    lines = [line for line in node.ask("/metrics/cadvisor").splitlines() if 'pod="busy-lone"' in line]
    found = {
        name
        for line in lines
        if line.startswith("container_memory_working_set_bytes")
        for name in re.findall(r'container="([^"]*)"', line)
    }
    assert "main" in found, lines
    node.take("busy")


def test_an_exit_an_oom_and_a_message_are_told(node: LoneNode) -> None:
    script = "echo note >/dev/termination-log; exit 3"
    limited = {"limits": {"memory": "16Mi"}, "requests": {"memory": "8Mi"}}
    node.put("ended", container(script=script), restartPolicy="Never")
    node.put("greedy", container(script="tail /dev/zero", resources=limited), restartPolicy="Never")

    def ended(status: Json) -> object:
        return "terminated" in (status.get("state") or {})

    status = node.until("ended", ended, "ended")
    terminated = status["state"]["terminated"]
    assert (terminated["exitCode"], terminated["message"]) == (3, "note\n")
    assert node.until("greedy", ended, "ended")["state"]["terminated"]["reason"] == "OOMKilled"
    for name in ("ended", "greedy"):
        node.take(name)


def test_a_pod_has_users_of_its_own(node: LoneNode) -> None:
    node.put("own", busy(), hostUsers=False)
    node.ready("own")
    inside, outside, count = map(int, node.shell("own", "cat /proc/self/uid_map").split())
    assert (inside, count) == (0, 65536) and outside >= 65536
    node.take("own")


def test_pods_outlive_the_agent_and_the_runtime(node: LoneNode) -> None:
    assert _FOLDER is not None
    node.put("lives", busy())
    first = node.ready("lives")["containerID"]
    node.stop("agent")
    node.start_agent()
    assert node.shell("lives", "echo here") == "here\n"
    node.stop("crio")
    crio.start_again(node, _FOLDER)
    node.put("later", busy())
    node.ready("later")
    status = node.ready("lives")
    assert (status["containerID"], status["restartCount"]) == (first, 0)
    for name in ("lives", "later"):
        node.take(name)
    assert "default" not in node.run("ls", "/var/log/pods")
