"""The real shim against the real kernel, with its server, without it, and with the server killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nodelib.json_values import Json
from tests.netns.cni_world import Node, World, answer_of, wait_for

pytestmark = pytest.mark.netns


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def node(world: World) -> Node:
    made = world.node()
    made.start_server()
    return made


@pytest.fixture(params=["server", "alone"])
def either(request: pytest.FixtureRequest, node: Node) -> Node:
    """The same test with a server, and after it was killed."""
    if request.param == "alone":
        node.stop_server()
    return node


def addresses(namespace: Any, ifname: str) -> list[str]:
    shown = json.loads(namespace.run("ip", "-json", "-4", "addr", "show", "dev", ifname).stdout)
    return [f"{item['local']}/{item['prefixlen']}" for item in shown[0]["addr_info"]]


def test_add_check_del(either: Node, world: World) -> None:
    pod = world.namespace()
    added = either.call("ADD", "c1", pod.path)
    assert added.status == 0, added
    assert added.body["cniVersion"] == "1.1.0"
    assert added.body["ips"] == [{"address": "10.244.0.2/24", "gateway": "10.244.0.1", "interface": 2}]
    assert added.body["routes"] == [{"dst": "0.0.0.0/0", "gw": "10.244.0.1"}]
    bridge, host, inside = added.body["interfaces"]
    assert (bridge["name"], inside["name"], inside["sandbox"]) == ("nw0", "eth0", pod.path)
    assert either.veths() == [host["name"]]
    assert addresses(pod, "eth0") == ["10.244.0.2/24"]
    assert addresses(pod, "lo") == ["127.0.0.1/8"]
    assert "default via 10.244.0.1" in pod.run("ip", "route").stdout
    assert either.store() == {"10.244.0.2": "c1"}

    assert either.call("CHECK", "c1", pod.path, prevResult=added.body).status == 0
    pod.run("ip", "addr", "del", "10.244.0.2/24", "dev", "eth0")
    checked = either.call("CHECK", "c1", pod.path, prevResult=added.body)
    assert (checked.status, checked.body["code"]) == (1, 102)
    assert "eth0 lacks the address 10.244.0.2/24" in checked.body["msg"]

    assert either.call("DEL", "c1", pod.path).status == 0
    assert either.veths() == []
    assert either.store() == {}
    assert either.call("DEL", "c1", pod.path).status == 0


def test_node_and_pods_reach_each_other(either: Node, world: World) -> None:
    one, two = world.namespace(), world.namespace()
    ip_one, ip_two = either.add("c1", one), either.add("c2", two)
    two.serve("tcp", 8080, "two")
    assert one.ask("tcp", ip_two, 8080) == f"two {ip_one}"
    assert either.namespace.ask("tcp", ip_two, 8080) == "two 10.244.0.1"


def test_an_add_that_is_repeated_keeps_what_is_there(either: Node, world: World) -> None:
    pod = world.namespace()
    first = either.call("ADD", "c1", pod.path)
    again = either.call("ADD", "c1", pod.path)
    assert (again.status, again.body) == (0, first.body)
    assert either.veths() == [first.body["interfaces"][1]["name"]]


def test_an_add_repairs_what_was_left_half_done(either: Node, world: World) -> None:
    pod = world.namespace()
    first = either.call("ADD", "c1", pod.path)
    either.namespace.run("ip", "link", "del", first.body["interfaces"][1]["name"])
    assert either.add("c1", pod) == "10.244.0.2"
    assert addresses(pod, "eth0") == ["10.244.0.2/24"]


def test_del_when_the_namespace_is_gone(either: Node, world: World) -> None:
    pod = world.namespace()
    either.add("c1", pod)
    path = pod.path
    pod.close()
    assert either.call("DEL", "c1", path).status == 0
    assert either.store() == {}
    assert either.call("DEL", "c1", "").status == 0
    assert either.call("DEL", "never-seen", "/run/netns/never-seen").status == 0


def test_gc_releases_what_is_not_valid(either: Node, world: World) -> None:
    pods = [world.namespace() for _ in range(3)]
    for number, pod in enumerate(pods):
        either.add(f"c{number}", pod)
    changes: Json = {"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]}
    answer = either.call("GC", **changes)
    assert answer.status == 0, answer
    assert list(either.store().values()) == ["c1"]
    assert len(either.veths()) == 1
    without = either.call("GC")
    assert (without.status, without.body["code"]) == (1, 7)
    assert list(either.store().values()) == ["c1"]


def test_status_and_version(either: Node) -> None:
    assert either.call("STATUS").status == 0
    version = either.call("VERSION", raw=b'{"cniVersion":"1.0.0"}')
    assert version.body == {
        "cniVersion": "1.0.0",
        "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"],
    }


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0"])
def test_older_versions(either: Node, world: World, version: str) -> None:
    pod = world.namespace()
    added = either.call("ADD", "c1", pod.path, cniVersion=version)
    assert added.status == 0, added
    assert added.body["cniVersion"] == version
    assert ("version" in added.body["ips"][0]) == (version != "1.0.0")
    assert either.call("DEL", "c1", pod.path, cniVersion=version).status == 0


BAD = {
    "no JSON": ({"raw": b"{nonsense"}, 6),
    "not an object": ({"raw": b"[1]"}, 6),
    "empty": ({"raw": b""}, 6),
    "not UTF-8": ({"raw": b"\xff\xfe{}"}, 6),
    "unknown version": ({"cniVersion": "7.0.0"}, 1),
    "version of a wrong type": ({"cniVersion": 1}, 1),
    "no name": ({"name": ""}, 7),
    "name that leaves the folder": ({"name": "../../etc"}, 7),
    "bad subnet": ({"ipam": {"ranges": [[{"subnet": "10.0.0.1/24"}]]}}, 7),
    "no ranges": ({"ipam": {}}, 7),
    "foreign ipam": ({"ipam": {"type": "dhcp"}}, 2),
    "bridge with a slash": ({"bridge": "a/b"}, 7),
    "bad port mapping": ({"runtimeConfig": {"portMappings": [{"hostPort": 99999, "containerPort": 1}]}}, 7),
    "no command": ({"env": {"CNI_COMMAND": ""}}, 4),
    "unknown command": ({"env": {"CNI_COMMAND": "add; reboot"}}, 4),
    "container that is a path": ({"env": {"CNI_CONTAINERID": "../../x"}}, 4),
    "container too long": ({"env": {"CNI_CONTAINERID": "x" * 300}}, 4),
    "interface with a slash": ({"env": {"CNI_IFNAME": "eth0/../.."}}, 4),
    "interface with a space": ({"env": {"CNI_IFNAME": "eth 0"}}, 4),
    "interface too long": ({"env": {"CNI_IFNAME": "e" * 16}}, 4),
    "interface ..": ({"env": {"CNI_IFNAME": ".."}}, 4),
    "no netns": ({"env": {"CNI_NETNS": ""}}, 4),
    "netns that does not exist": ({"env": {"CNI_NETNS": "/run/netns/nwc-nothing"}}, 3),
    "netns that is a file": ({"env": {"CNI_NETNS": "/etc/hostname"}}, 8),
    "netns that is another kind": ({"env": {"CNI_NETNS": "/proc/self/ns/uts"}}, 8),
    "netns of the node itself": ({"env": {"CNI_NETNS": "/proc/self/ns/net"}}, 8),
    "CNI_ARGS that are none": ({"env": {"CNI_ARGS": "nonsense"}}, 4),
    "an address that is none": ({"env": {"CNI_ARGS": "IP=1.2.3"}}, 4),
    "an address of elsewhere": ({"env": {"CNI_ARGS": "IP=192.0.2.1"}}, 101),
}


def test_bad_input_is_a_coded_error_and_changes_nothing(either: Node, world: World) -> None:
    pod = world.namespace()
    before = either.namespace.run("ip", "-json", "addr").stdout
    wrong = []
    for name, (changes, code) in BAD.items():
        answer = either.call("ADD", "c1", pod.path, **changes)  # type: ignore[arg-type]
        if answer.status != 1 or answer.body.get("code") != code or not answer.body.get("msg"):
            wrong.append((name, code, answer))
    assert not wrong
    assert either.namespace.run("ip", "-json", "addr").stdout == before
    assert either.store() == {}
    assert [item["ifname"] for item in json.loads(pod.run("ip", "-json", "link").stdout)] == ["lo"]


def test_a_failed_add_leaves_nothing_behind(either: Node, world: World) -> None:
    pod = world.namespace()
    pod.run("ip", "link", "add", "eth0", "type", "bridge")
    answer = either.call("ADD", "c1", pod.path)
    assert (answer.status, answer.body["code"]) == (1, 4)
    assert "has an interface eth0 already" in answer.body["msg"]
    assert (either.store(), either.veths()) == ({}, [])


def test_chaining_adds_to_the_previous_result(either: Node, world: World) -> None:
    pod = world.namespace()
    previous = {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "other0", "sandbox": pod.path}],
        "ips": [{"address": "192.0.2.9/24", "interface": 0}],
        "dns": {"nameservers": ["192.0.2.1"]},
    }
    added = either.call("ADD", "c1", pod.path, prevResult=previous)
    assert [item["name"] for item in added.body["interfaces"]][::3] == ["other0", "eth0"]
    assert [item["address"] for item in added.body["ips"]] == ["192.0.2.9/24", "10.244.0.2/24"]
    assert added.body["ips"][1]["interface"] == 3
    assert added.body["dns"] == {"nameservers": ["192.0.2.1"]}
    assert either.call("CHECK", "c1", pod.path, prevResult=added.body).status == 0


def test_an_address_asked_for(either: Node, world: World) -> None:
    pods = [world.namespace(), world.namespace()]
    assert either.add("c1", pods[0], env={"CNI_ARGS": "IP=10.244.0.77"}) == "10.244.0.77"
    answer = either.call("ADD", "c2", pods[1].path, env={"CNI_ARGS": "IP=10.244.0.77"})
    assert (answer.status, answer.body["code"]) == (1, 101)


def test_the_range_ends(world: World) -> None:
    node = world.node(cidr="10.244.0.0/30")
    node.start_server()
    pods = [world.namespace(), world.namespace()]
    assert node.add("c1", pods[0]) == "10.244.0.2"
    answer = node.call("ADD", "c2", pods[1].path)
    assert (answer.status, answer.body["code"]) == (1, 101)
    assert "no free IPv4 address in 10.244.0.0/30" in answer.body["msg"]
    node.call("DEL", "c1", pods[0].path)
    assert node.add("c2", pods[1]) == "10.244.0.2"


def test_addresses_survive_a_killed_server(node: Node, world: World) -> None:
    pods = [world.namespace() for _ in range(3)]
    first = node.add("c0", pods[0])
    node.stop_server(signal.SIGKILL)
    second = node.add("c1", pods[1])
    node.start_server()
    third = node.add("c2", pods[2])
    assert (first, second, third) == ("10.244.0.2", "10.244.0.3", "10.244.0.4")
    assert node.call("DEL", "c1", pods[1].path).status == 0
    assert node.store() == {"10.244.0.2": "c0", "10.244.0.4": "c2"}
    pods[2].serve("tcp", 80, "pod2")
    assert pods[0].ask("tcp", third, 80) == f"pod2 {first}"


def test_server_killed_while_adds_run(node: Node, world: World) -> None:
    pods = {f"c{number}": world.namespace() for number in range(24)}
    calls = {name: node.start_call("ADD", name, pod.path) for name, pod in pods.items()}
    wait_for("some are done", lambda: len(node.store()) >= 3)
    node.stop_server(signal.SIGKILL)
    answers = {name: answer_of(call) for name, call in calls.items()}
    assert [item for item in answers.values() if item.status] == []
    given = [item.body["ips"][0]["address"] for item in answers.values()]
    assert len(set(given)) == len(pods)
    assert sorted(f"{address}/24" for address in node.store()) == sorted(given)
    for name, pod in pods.items():
        assert addresses(pod, "eth0") == [answers[name].body["ips"][0]["address"]]
    node.start_server()
    for name, pod in pods.items():
        assert node.call("DEL", name, pod.path).status == 0
    assert (node.store(), node.veths()) == ({}, [])


def test_killed_at_any_point_of_an_add(node: Node, world: World) -> None:
    """The plugin alone, SIGKILLed at ten points spread over its ADD: the next ADD or DEL makes all well."""
    node.stop_server()
    pod = world.namespace()
    began = time.monotonic()
    assert node.call("ADD", "whole", pod.path).status == 0
    whole = time.monotonic() - began
    assert node.call("DEL", "whole", pod.path).status == 0
    for point in range(10):
        pod = world.namespace()
        process = node.start_call("ADD", "c1", pod.path)
        with suppress(subprocess.TimeoutExpired):
            process.wait(whole * point / 9)
        process.kill()
        process.communicate()
        if point % 2:
            assert node.call("ADD", "c1", pod.path).status == 0
            assert list(node.store().values()) == ["c1"]
            assert len(node.veths()) == 1
        assert node.call("DEL", "c1", pod.path).status == 0
        assert (node.store(), node.veths()) == ({}, [])


def test_a_server_that_hangs_up_or_hangs(node: Node, world: World) -> None:
    """A connection that ends without an answer is no answer: the plugin does it itself."""
    import socket
    import threading

    node.stop_server()
    path = node.folder / "cni.sock"
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    thread = threading.Thread(target=lambda: listener.accept()[0].close())
    thread.start()
    assert node.add("c1", world.namespace()) == "10.244.0.2"
    thread.join()
    listener.close()


def test_collect_what_the_runtime_does_not_know(node: Node, world: World) -> None:
    pods = [world.namespace(), world.namespace()]
    node.add("c0", pods[0])
    node.add("c1", pods[1])
    node.stop_server()
    for item in (node.folder / "data" / "nodewright").glob("10.*"):
        record = json.loads(item.read_text())
        item.write_text(json.dumps(record | {"created": time.time() - 3600}))
    node.config["live"] = ["c1"]
    node.start_server()
    wait_for("the dead sandbox's address is free", lambda: node.store() == {"10.244.0.3": "c1"})
    assert len(node.veths()) == 1


@pytest.mark.skipif(os.cpu_count() == 1, reason="200 processes need more than one core to mean anything")
def test_200_parallel_adds(node: Node, world: World) -> None:
    pods = {f"c{number}": world.namespace() for number in range(200)}
    started = time.monotonic()
    calls = {name: node.start_call("ADD", name, pod.path) for name, pod in pods.items()}
    answers = [answer_of(call) for call in calls.values()]
    took = time.monotonic() - started
    print(f"200 parallel ADDs: {took:.2f} s")
    assert [item for item in answers if item.status] == []
    assert len({item.body["ips"][0]["address"] for item in answers}) == 200
    assert len(node.store()) == len(node.veths()) == 200
    calls = {name: node.start_call("DEL", name, pod.path) for name, pod in pods.items()}
    assert [item for item in map(answer_of, calls.values()) if item.status] == []
    assert (node.store(), node.veths()) == ({}, [])
