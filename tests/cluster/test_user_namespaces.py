"""Pods with users of their own (`hostUsers: false`): none is root of the node or of another pod, and all else works."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from nodelib.json_values import Json
from tests.builders.pods import container, manifest
from tests.cluster.world import World, containers_of, is_ready, state_of

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

NODE = "node1"
_SERVES = "mkdir /tmp/web; echo well >/tmp/web/index.html; httpd -p 8080 -h /tmp/web; echo begun; sleep 3600 & wait"


def own(name: str, *containers: Json, **spec: Any) -> Json:
    box = container(script=_SERVES, readinessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1})
    return manifest(name, *(containers or (box,)), **{"nodeName": NODE, "hostUsers": False, **spec})


async def ids(world: World, name: str, of: str = "uid") -> tuple[int, int]:
    """The first ID of the node that the pod has, and how many."""
    inside, outside, count = map(int, (await world.shell(name, f"cat /proc/self/{of}_map")).split())
    assert inside == 0
    return outside, count


async def test_no_two_pods_have_the_same_users_also_after_a_restart_of_the_agent(world: World) -> None:
    made = await asyncio.gather(*(world.run(own(name)) for name in ("one", "two")))
    first, second = await ids(world, "one"), await ids(world, "two")
    assert first == await ids(world, "one", "gid") and first != second
    assert first[1] == second[1] == 65536 and first[0] >= 65536 <= second[0]
    assert await world.shell("one", "id -u") == "0\n"
    pid = (await world.in_node(NODE, "pgrep", "-f", "^httpd -p 8080")).text.split()[0]
    owner = int((await world.in_node(NODE, "stat", "-c", "%u", f"/proc/{pid}")).text)
    assert owner in (first[0], second[0]), "root of the pod is nobody on the node"

    await world.kill(NODE, "agent")
    await world.agent_well(NODE)
    await world.run(own("three"))
    third = await ids(world, "three")
    assert third not in (first, second)
    assert (await ids(world, "one"), await ids(world, "two")) == (first, second)
    await world.shell("one", "kill 1", check=False)
    again = await world.until(
        "one", lambda pod: is_ready(pod) and containers_of([pod]) != containers_of([made[0]]), "restarted"
    )
    assert state_of(again)[0] == "running" and await ids(world, "one") == first


async def test_logs_exec_probes_and_the_network_work_as_for_other_pods(world: World) -> None:
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    box = container(script=f"echo note >/dev/termination-log; {_SERVES}", readinessProbe=probe, livenessProbe=probe)
    made = await world.run(own("web", box))
    address = made["status"]["podIP"]
    assert (await world.kubectl("logs", "web")).text == "begun\n"
    assert (await world.in_node("node2", "curl", "-s", "-m", "5", f"http://{address}:8080/")).text == "well\n"
    assert "web" in await world.shell("web", "cat /etc/hosts")
    assert await world.shell("web", "mount | grep -c ' / '") == "1\n"
    refused = await world.shell("web", "mount -t tmpfs none /mnt 2>&1 || echo no", check=False)
    assert "no" in refused
    await world.shell("web", "kill 1", check=False)
    ended = await world.until(
        "web", lambda pod: state_of(pod)[0] == "running" and containers_of([pod]) != containers_of([made]), "restarted"
    )
    status = ended["status"]["containerStatuses"][0]
    assert status["lastState"]["terminated"]["message"] == "note\n"


async def test_files_of_volumes_have_the_owners_that_other_pods_see(world: World) -> None:
    folder = world.folder(NODE)
    (folder / "of-root").write_text("r")
    (folder / "of-1234").write_text("u")
    os.chown(folder / "of-1234", 1234, 1234)
    await world.config_map("settings", key="value")
    mounts = ["settings", "scratch", "memory", "host", "token"]
    box = container(
        script="sleep 3600 & wait",
        volumeMounts=[
            *({"name": name, "mountPath": f"/{name}"} for name in mounts),
            {"name": "scratch", "mountPath": "/part", "subPath": "part"},
        ],
    )
    volumes = [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "host", "hostPath": {"path": str(folder)}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
    ]
    await world.run(own("reader", box, volumes=volumes, securityContext={"fsGroup": 77}))

    async def owners(*paths: str) -> list[str]:
        return (await world.shell("reader", f"stat -L -c %u:%g {' '.join(paths)}")).split()

    assert await world.shell("reader", "cat /settings/key") == "value"
    found = await owners("/settings/key", "/token/token", "/host/of-root", "/host/of-1234", "/etc/hosts")
    assert found == ["0:77", "0:77", "0:0", "1234:1234", "0:0"]
    script = "touch /scratch/new /memory/new /part/new /host/new; chown 1234 /part/new; ls /scratch/part"
    assert await world.shell("reader", script) == "new\n"
    assert await owners("/scratch/new", "/memory/new", "/part/new", "/host/new") == ["0:77", "0:77", "1234:77", "0:0"]
    written = (folder / "new").stat()
    assert (written.st_uid, written.st_gid) == (0, 0), "as any other pod would have written it"


async def test_a_pod_that_is_not_allowed_to_have_its_own_users_says_so(world: World) -> None:
    refused = await world.kubectl("apply", "-f", "-", check=False, stdin=HOST_NETWORK)
    assert b"hostNetwork: Forbidden: when `hostUsers` is false" in refused.stderr


HOST_NETWORK = (
    b'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "both"}, "spec": {"hostUsers": false,'
    b' "hostNetwork": true, "containers": [{"name": "main", "image": "x"}]}}'
)
