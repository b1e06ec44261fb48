"""The plugin under other runtimes: the CNI project's cnitool, chained with a third-party plugin.

cnitool is built from its Go module (seconds once the module is there); without Go the tests are skipped and say so.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.binaries.work import ensure
from controlplane.cluster.edge.roots import cache_root
from controlplane.machine.edge import cgroups
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from tests.netns.cni_world import Namespace, Node, World, wait_for

pytestmark = pytest.mark.netns

THEIRS = Path("/usr/lib/cni")  # Debian's containernetworking-plugins


@pytest.fixture(scope="module")
def cnitool() -> str:
    try:
        return str(ensure(["cnitool"], cache_dir=Path(cache_root())).path("cnitool"))
    except NodewrightError as error:
        pytest.skip(f"cnitool cannot be built here: {error}")


@pytest.fixture(params=["server", "alone"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    world = World(tmp_path)
    try:
        made = world.node()
        made.start_server()
        made.world = world  # type: ignore[attr-defined]
        if request.param == "alone":
            made.stop_server()
        yield made
    finally:
        world.close()


class Tool:
    """cnitool in a node's namespace, with a configuration list that has `more` plugins after ours."""

    def __init__(self, binary: str, node: Node, *more: Json) -> None:
        self._binary, self._node = binary, node
        self._folder = node.folder / "tool"
        self._folder.mkdir()
        conf = json.loads(node.conflist.read_text())
        if more:  # Debian's plugins know 1.0.0 at most, and libcni takes the highest that the list allows
            del conf["cniVersions"]
        conf |= {"cniVersion": "1.0.0" if more else "1.1.0", "name": "nodewright", "plugins": [*conf["plugins"], *more]}
        (self._folder / "10-net.conflist").write_text(json.dumps(conf))

    def run(self, command: str, pod: Namespace) -> tuple[int, str]:
        env = os.environ | {
            "NETCONFPATH": str(self._folder),
            "CNI_PATH": f"{self._node.folder / 'bin'}:{THEIRS}",
            "CAP_ARGS": json.dumps({"bandwidth": {"ingressRate": 80_000_000, "ingressBurst": 8_000_000}}),
        }
        done = self._node.namespace.run(self._binary, command, "nodewright", pod.path, check=False, env=env)
        return done.returncode, done.stdout + done.stderr


def test_cnitool_adds_checks_and_deletes(cnitool: str, node: Node) -> None:
    pod = node.world.namespace()  # type: ignore[attr-defined]
    tool = Tool(cnitool, node)
    code, said = tool.run("add", pod)
    assert code == 0, said
    assert json.loads(said)["ips"][0]["address"] == "10.244.0.2/24"
    assert "tbf" in node.namespace.run("tc", "qdisc", "show", "dev", node.veths()[0]).stdout
    pod.serve("tcp", 80, "pod")
    assert node.namespace.ask("tcp", "10.244.0.2", 80).startswith("pod ")
    assert tool.run("check", pod)[0] == 0
    assert tool.run("status", pod)[0] == 0
    assert tool.run("del", pod)[0] == 0
    assert tool.run("del", pod)[0] == 0, "DEL again is no error"
    assert (node.store(), node.veths()) == ({}, [])


@pytest.fixture
def podman(node: Node) -> list[str]:
    """Its command line, with files of its own under the node's folder and nothing of the machine's."""
    busybox = shutil.which("busybox")
    if shutil.which("podman") is None or busybox is None:
        pytest.skip("podman and busybox are not installed")
    folder = node.folder / "podman"
    (folder / "net.d").mkdir(parents=True)
    conf = json.loads(node.conflist.read_text())
    del conf["cniVersions"]  # podman 4's libcni knows 1.0.0 at most
    conf |= {"cniVersion": "1.0.0", "name": "nodewright"}
    (folder / "net.d" / "10-net.conflist").write_text(json.dumps(conf))
    (folder / "containers.conf").write_text(
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\nruntime = "runc"\n'
        '[network]\nnetwork_backend = "cni"\n'
        f'cni_plugin_dirs = ["{node.folder / "bin"}"]\nnetwork_config_dir = "{folder / "net.d"}"\n'
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder / "graph"}"\nrunroot = "{folder / "run"}"\n'
    )
    (folder / "rootfs" / "bin").mkdir(parents=True)
    shutil.copy(busybox, folder / "rootfs" / "bin" / "busybox")
    (folder / "rootfs" / "srv").mkdir()
    (folder / "rootfs" / "srv" / "who").write_text("podman")
    settings = [f"CONTAINERS_CONF={folder / 'containers.conf'}", f"CONTAINERS_STORAGE_CONF={folder / 'storage.conf'}"]
    return ["env", *settings, "podman", "--tmpdir", str(folder / "tmp")]


def test_podman_runs_it(podman: list[str], node: Node) -> None:
    def run(*argv: str) -> str:
        done = node.namespace.run(*podman, *argv, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    serve = ["/bin/busybox", "httpd", "-f", "-p", "80", "-h", "/srv"]
    parent = f"/nodewright-podman-{os.getpid()}"  # podman removes its containers' cgroups, not what they are in
    more = [f"--cgroup-parent={parent}", "--network", "nodewright", "--rootfs", str(node.folder / "podman" / "rootfs")]
    name = run("run", "--detach", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", *more, *serve)
    try:
        assert run("inspect", "--format", "{{.NetworkSettings.Networks.nodewright.IPAddress}}", name) == "10.244.0.2"
        assert len(node.veths()) == 1
        ask = ("curl", "-s", "-m", "2", "http://10.244.0.2/who")
        wait_for("it answers", lambda: node.namespace.run(*ask, check=False).stdout == "podman", 30)
    finally:
        run("rm", "--force", "--time=0", name)
        cgroups.remove(cgroups.hierarchies(), parent)
    assert (node.store(), node.veths()) == ({}, [])


def test_somebody_elses_plugin_after_ours(cnitool: str, node: Node) -> None:
    if not (THEIRS / "tuning").exists():
        pytest.skip("containernetworking-plugins is not installed")
    pod = node.world.namespace()  # type: ignore[attr-defined]
    tool = Tool(cnitool, node, {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.arp_filter": "1"}})
    code, said = tool.run("add", pod)
    assert code == 0, said
    assert json.loads(said)["ips"][0]["address"] == "10.244.0.2/24"
    assert pod.run("cat", "/proc/sys/net/ipv4/conf/eth0/arp_filter").stdout.strip() == "1"
    assert tool.run("check", pod)[0] == 0, "the prevResult that the runtime kept suits us"
    assert tool.run("del", pod)[0] == 0
    assert node.veths() == []


def test_ours_after_somebody_elses(cnitool: str, node: Node) -> None:
    """A chain whose first plugin is Debian's bridge: our interface comes second, its result is kept."""
    if not (THEIRS / "ptp").exists() or shutil.which("iptables") is None:
        pytest.skip("containernetworking-plugins is not installed")
    pod = node.world.namespace()  # type: ignore[attr-defined]
    first = {
        "cniVersion": "1.0.0",
        "name": "ptp-net",
        "type": "ptp",
        "ipam": {"type": "host-local", "subnet": "10.99.0.0/24", "dataDir": str(node.folder / "theirs")},
    }
    env = os.environ | {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c1",
        "CNI_NETNS": pod.path,
        "CNI_IFNAME": "eth0",
        "CNI_PATH": str(THEIRS),
    }
    theirs = json.loads(node.namespace.run(str(THEIRS / "ptp"), input=json.dumps(first), env=env).stdout)
    ours = node.call("ADD", "c1", pod.path, ifname="eth1", cniVersion="1.0.0", prevResult=theirs)
    assert ours.status == 0, ours
    assert [item["address"] for item in ours.body["ips"]] == [theirs["ips"][0]["address"], "10.244.0.2/24"]
    assert [item["name"] for item in ours.body["interfaces"]][-1] == "eth1"
    assert node.call("CHECK", "c1", pod.path, ifname="eth1", cniVersion="1.0.0", prevResult=ours.body).status == 0
    assert node.call("DEL", "c1", pod.path, ifname="eth1", cniVersion="1.0.0", prevResult=ours.body).status == 0
