"""The daemons under the confinement of their units: what they may not do, and that a real proxy still does its work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.host.plan.host_files import host_files
from tests.netns import api_server, confinement
from tests.netns.cni_world import wait_for
from tests.netns.proxy_world import OUTSIDE, ProxyWorld, names

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not confinement.header().exists(), reason="no header with the numbers of system calls"),
]


def unit(folder: Path, name: str) -> str:
    text = next(one.text for one in host_files("/srv/nodewright") if one.path.endswith(f"/{name}"))
    path = folder / name
    path.write_text(text)
    return str(path)


def confined(path: str, *argv: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, confinement.__file__, path, *argv]
    return subprocess.run(["unshare", "--net", "--mount", "--uts", *line], capture_output=True, text=True, timeout=60)


REFUSED = {
    "clock": ["python3", "-c", "import time; time.clock_settime(time.CLOCK_REALTIME, time.time())"],
    "packet sockets": ["python3", "-c", "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()"],
    "writable code": ["python3", "-c", "import mmap; mmap.mmap(-1, 4096, prot=7)"],
    "user namespaces": ["unshare", "--user", "true"],
    "PID namespaces": ["unshare", "--pid", "true"],
}


@pytest.mark.parametrize("name", ["kubelet.service", "nodewright-proxy.service"])
@pytest.mark.parametrize("what", REFUSED)
def test_what_neither_may_do(tmp_path: Path, name: str, what: str) -> None:
    if what != "clock":  # not every machine lets root set it
        subprocess.run(["unshare", "--net", "--mount", *REFUSED[what]], check=True, timeout=60)
    assert confined(unit(tmp_path, name), *REFUSED[what]).returncode != 0


@pytest.mark.parametrize(
    ("name", "allowed"),
    [pytest.param("kubelet.service", True, id="agent"), pytest.param("nodewright-proxy.service", False, id="proxy")],
)
@pytest.mark.parametrize(
    "script",
    [
        pytest.param("mount -t tmpfs none /mnt && mount --bind /mnt /mnt && umount /mnt", id="mounts"),
        pytest.param("unshare --net true", id="network namespaces"),
        pytest.param("d=$(mktemp -d) && chown 1000:1000 $d && rmdir $d", id="owners"),
        pytest.param("d=$(mktemp -d) && mknod $d/n c 1 3 && rm -r $d", id="devices"),
    ],
)
def test_what_the_agent_must_do_and_the_proxy_may_not(tmp_path: Path, name: str, allowed: bool, script: str) -> None:
    done = confined(unit(tmp_path, name), "sh", "-ec", script)
    assert (done.returncode == 0) is allowed, done.stderr


def test_the_agent_s_mounts_are_the_machine_s() -> None:
    """Each of these makes a mount namespace: the runtime would not see the volumes (systemd.exec(5))."""
    text = next(one.text for one in host_files("/srv/nodewright") if one.path.endswith("/kubelet.service"))
    found = {line.partition("=")[0] for line in text.splitlines() if "=" in line and not line.startswith("#")}
    apart = {
        *("PrivateTmp", "PrivateDevices", "PrivateMounts", "MountFlags", "RootDirectory", "TemporaryFileSystem"),
        *("ProtectSystem", "ProtectHome", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs"),
        *("ProtectControlGroups", "ProtectProc", "ProcSubset", "ProtectClock", "ProtectHostname", "BindPaths"),
        *("ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "DynamicUser", "RestrictSUIDSGID"),
    }
    assert found & apart == set()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[api_server.ApiServer]:
    with api_server.running(tmp_path_factory.mktemp("api"), []) as one:
        yield one


@pytest.mark.parametrize("mode", ["iptables", "nftables", "userspace"])
def test_a_confined_proxy_serves_as_ever(api: api_server.ApiServer, tmp_path: Path, mode: str) -> None:
    world = ProxyWorld(tmp_path, api, mode)
    try:
        wrapper = (sys.executable, confinement.__file__, unit(tmp_path, "nodewright-proxy.service"))
        world.start_proxy(wrapper=wrapper)
        one = world.pod(11, ("tcp", 8080))
        created = world.service("web", type="NodePort")
        ip, port = created["spec"]["clusterIP"], created["spec"]["ports"][0]["nodePort"]
        world.endpoints("web", ["10.244.0.11"])
        wait_for("the Service answers", lambda: names(world.ask(one, "tcp", ip, 80)) == {"pod11"})
        wait_for("its port answers", lambda: names(world.ask(world.client, "tcp", OUTSIDE, port)) == {"pod11"})
        assert "kubeproxy_sync_proxy_rules" in world.fetch("http://127.0.0.1:10249/metrics")
        world.endpoints("web", [])
        wait_for("it is refused", lambda: names(world.ask(world.client, "tcp", OUTSIDE, port)) != {"pod11"})
        # A machine may refuse that to any root (no CAP_SYS_RESOURCE).
        lines = [line for line in world.log.splitlines() if "oomScoreAdj" not in line]
        assert [line for line in lines if "not permitted" in line or "ermission denied" in line] == []
        status = Path(f"/proc/{world.proxy.pid}/status").read_text() if world.proxy else ""
        assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status
    finally:
        world.close()
