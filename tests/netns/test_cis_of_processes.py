"""`doctor --cis` on real processes in namespaces of their own: command lines, files, listeners, a hostile container."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = pytest.mark.netns

# A stand-in that is named, listens and holds files as the real one: what is read of it is read by /proc alone.
_DAEMON = """
import socket, sys, time
held = []
for place in sys.argv[1].split(","):
    if place:
        host, _, port = place.rpartition(":")
        one = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((host.strip("[]"), int(port)))
        one.listen()
        held.append(one)
print("ready", flush=True)
time.sleep(600)
"""
_JUDGE = """
import asyncio, json, sys
from dataclasses import asdict
from controlplane.doctor.work import examine_controls
print(json.dumps([asdict(one) for one in asyncio.run(examine_controls("no-such-cluster"))]))
"""


@dataclass
class Machine:
    """A network, mount and UTS namespace with a /var/lib, a /run and an /etc of its own."""

    folder: Path
    holder: subprocess.Popen[str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def inside(self, argv: list[str], *more: str) -> list[str]:
        return ["nsenter", f"--target={self.holder.pid}", "--net", "--mount", "--uts", *more, "--", *argv]

    def shell(self, script: str) -> None:
        subprocess.run(self.inside(["sh", "-ec", script]), check=True, timeout=60)

    def start(self, name: str, *flags: str, listen: str = "", apart: bool = False) -> None:
        """Run a stand-in as `name`; `apart`: in another mount namespace, as a container."""
        argv = ["bash", "-c", f'exec -a {name} {sys.executable} -c "$0" "$@"', _DAEMON, listen, *flags]
        argv = ["unshare", "--mount", *argv] if apart else argv
        # Under another name an interpreter does not find its library by itself.
        env = {**os.environ, "PYTHONHOME": sys.base_prefix}
        made = subprocess.Popen(self.inside(argv), stdout=subprocess.PIPE, text=True, env=env)
        assert made.stdout is not None and made.stdout.readline() == "ready\n"
        self.started.append(made)

    def judge(self) -> dict[str, dict[str, str]]:
        env = {**os.environ, "PYTHONPATH": os.getcwd(), "NODEWRIGHT_STATE": str(self.folder), "KUBECONFIG": ""}
        done = subprocess.run(
            self.inside([sys.executable, "-c", _JUDGE]), env=env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return {one["control"]: one for one in json.loads(done.stdout)}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    argv = ["unshare", "--net", "--mount", "--uts", "sh", "-c", "echo ready; exec sleep 600"]
    holder = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "ready\n"
    made = Machine(tmp_path, holder)
    try:
        made.shell(
            "hostname n1; ip link set lo up; mount -t tmpfs none /var/lib; mount -t tmpfs none /run;"
            " mount -t tmpfs none /mnt; mkdir /mnt/upper /mnt/work;"
            " mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc;"
            " mkdir -p /var/lib/kubelet/pki /etc/systemd/system;"
            " for name in config.yaml kubelet.conf proxy.yaml proxy.conf ca.crt; do"
            "   echo '{}' > /var/lib/kubelet/$name; chmod 600 /var/lib/kubelet/$name; done;"
            " echo unit > /etc/systemd/system/kubelet.service; chmod 600 /etc/systemd/system/kubelet.service"
        )
        yield made
    finally:
        for one in (*made.started, holder):
            one.send_signal(signal.SIGKILL)
            one.wait()
            if one.stdout:
                one.stdout.close()


def configure(machine: Machine, name: str, document: dict[str, object]) -> None:
    (machine.folder / "text").write_text(json.dumps(document))
    machine.shell(f"cat {machine.folder}/text > /var/lib/kubelet/{name}")


def statuses(found: dict[str, dict[str, str]], status: str) -> set[str]:
    return {control for control, one in found.items() if one["status"] == status}


KUBELET = ("--config=/var/lib/kubelet/config.yaml", "--kubeconfig", "/var/lib/kubelet/kubelet.conf")
PROXY = ("--config=/var/lib/kubelet/proxy.yaml",)


def test_an_upstream_kubelet_by_its_files_flags_and_listeners(machine: Machine) -> None:
    """Nobody answers for it here, so its file and its flags are read, with upstream's defaults."""
    configure(
        machine,
        "config.yaml",
        {"authentication": {"x509": {"clientCAFile": "/var/lib/kubelet/ca.crt"}}, "rotateCertificates": True},
    )
    configure(machine, "proxy.yaml", {"clientConnection": {"kubeconfig": "/var/lib/kubelet/proxy.conf"}})
    machine.start("kubelet", *KUBELET, "--pod-max-pids=100", "--seccomp-default", "--tls-min-version=VersionTLS13")
    machine.start("kube-proxy", *PROXY, listen="127.0.0.1:10249")
    machine.shell("for one in crt key; do touch /var/lib/kubelet/pki/kubelet.$one; done")
    found = machine.judge()
    assert statuses(found, "pass") == set(found), [one for one in found.values() if one["status"] != "pass"]
    assert found["4.1.1"]["finding"] == "/etc/systemd/system/kubelet.service has mode 0600"
    assert found["4.1.3"]["finding"] == "/var/lib/kubelet/proxy.conf has mode 0600"
    assert found["4.3.1"]["finding"] == "its metrics are served at 127.0.0.1:10249"
    assert "could not be asked" in found["4.2.1"]["source"] and found["4.2.1"]["node"] == "n1"


def test_what_is_loose_is_found(machine: Machine) -> None:
    machine.shell(
        "chmod 644 /var/lib/kubelet/config.yaml /etc/systemd/system/kubelet.service;"
        " chown 1000 /var/lib/kubelet/proxy.conf; chmod 640 /var/lib/kubelet/kubelet.conf"
    )
    configure(
        machine,
        "proxy.yaml",
        {"clientConnection": {"kubeconfig": "/var/lib/kubelet/proxy.conf"}, "metricsBindAddress": "127.0.0.1:10249"},
    )
    machine.start("kubelet", *KUBELET, "--read-only-port=10255", "--hostname-override=n1", "--anonymous-auth=true")
    machine.start("kube-proxy", *PROXY, listen="0.0.0.0:10249,[::1]:10249")
    found = machine.judge()
    assert {"4.1.1", "4.1.4", "4.1.5", "4.1.9", "4.2.1", "4.2.3", "4.2.4", "4.2.7", "4.3.1"} <= statuses(found, "fail")
    assert {"4.1.2", "4.1.3", "4.1.6", "4.1.10", "4.2.2"} <= statuses(found, "pass")
    assert found["4.3.1"]["finding"] == "its metrics are served at 0.0.0.0:10249"  # whatever its file says


def test_links_are_read_in_the_daemon_s_own_tree(machine: Machine) -> None:
    machine.shell(
        "cd /var/lib/kubelet; mv kubelet.conf real.conf; chmod 604 real.conf;"
        " ln -s /var/lib/kubelet/real.conf kubelet.conf"
    )
    machine.start("kubelet", *KUBELET)
    assert machine.judge()["4.1.5"]["finding"] == "/var/lib/kubelet/kubelet.conf has mode 0604"


def test_a_container_that_calls_itself_a_daemon_is_not_believed(machine: Machine) -> None:
    """Of the node's own network namespace, but with files of its own: a FIFO would hold whoever opens it."""
    machine.shell("mkfifo /var/lib/kubelet/trap")
    trap = "--config=/var/lib/kubelet/trap"
    machine.start("kubelet", trap, apart=True)
    machine.start("kube-proxy", trap, listen="0.0.0.0:10249", apart=True)
    machine.start("kubelet", *KUBELET)
    before = time.monotonic()
    found = machine.judge()
    assert time.monotonic() - before < 30
    assert found["4.1.9"]["finding"] == "/var/lib/kubelet/config.yaml has mode 0600"
    assert found["4.1.3"]["status"] == "pass" and found["4.3.1"]["status"] == "fail"


def test_a_configuration_that_is_no_file_is_unknown_and_holds_nobody(machine: Machine) -> None:
    machine.shell("cd /var/lib/kubelet; rm config.yaml; mkfifo config.yaml; chmod 600 config.yaml")
    machine.start("kubelet", *KUBELET)
    found = machine.judge()
    assert found["4.2.1"]["status"] == "unknown" and "not a regular file" in found["4.2.1"]["finding"]
