"""A node without a cluster: an agent that runs static pods, with a container runtime, in namespaces of its own.

For what lies between the agent and another runtime, or other users of it: `up` always has containerd, for itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controlplane.binaries.work import ensure
from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.plan.daemon_configs import containerd_config
from controlplane.images.work import binaries_for, ensure_images
from controlplane.machine.edge import cgroups, oom
from controlplane.machine.edge.namespaces import in_cgroups
from nodelib.json_values import Json
from tests.builders.pods import AGNHOST, BUSYBOX, container

ADDRESS = "10.89.251.2"
PAUSE = "registry.k8s.io/pause:3.10.2"
IMAGES = (PAUSE, BUSYBOX, AGNHOST)
CONTAINERD = "/run/containerd/containerd.sock"
PROJECT = Path(__file__).resolve().parents[2]
_CGROUP = f"/nodewright-lone-{os.getpid()}"  # of this run
_SPACES = ("--net", "--mount", "--uts", "--ipc", "--pid", "--cgroup")
_SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class LoneNode:
    """`folder`: of the test, which the machine sees at the same path. `pid`: of its process 1."""

    folder: Path
    pid: int
    socket: str
    settings: Json
    programs: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    # --- its processes ---------------------------------------------------------------------------------------------

    def inside(self, argv: Sequence[str]) -> list[str]:
        folders = cgroups.ensure(cgroups.hierarchies(), _CGROUP)
        return in_cgroups(folders, ["nsenter", f"--target={self.pid}", "-m", "-u", "-i", "-n", "-p", "-C", "--", *argv])

    def start(self, name: str, argv: Sequence[str], path: Sequence[Path] = (), **environment: str) -> None:
        """Start a program of the machine, whose output goes to NAME.log."""
        words = ":".join((*map(str, path), _SYSTEM))
        more = {"PATH": words, "HOME": "/root", "LANG": "C.UTF-8", **environment}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.programs[name] = subprocess.Popen(
                self.inside(["env", *(f"{key}={value}" for key, value in more.items()), *argv]),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, name: str) -> None:
        process = self.programs.pop(name)
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)

    def run(self, *argv: str, check: bool = True) -> str:
        """The output of a command on the machine."""
        done = subprocess.run(self.inside(argv), capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}{self.end_of_logs()}"
        return done.stdout

    def end_of_logs(self) -> str:
        logs = sorted(self.folder.glob("*.log"))
        return "".join(f"\n--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in logs)

    # --- the agent -------------------------------------------------------------------------------------------------

    def start_agent(self) -> None:
        self._configure()
        flags = ["--root-dir=/var/lib/kubelet", "--hostname-override=lone", f"--node-ip={ADDRESS}", "--v=2"]
        argv = [sys.executable, "-m", "cli.node_main", f"--config={self.folder}/kubelet.json", *flags]
        self.start("agent", [*argv, "--pod-network-cidr=10.244.0.0/16"], PYTHONPATH=str(PROJECT))
        self.wait(lambda: self.pods() is not None, "the agent answers")

    def start_upstream(self) -> None:
        """Upstream's kubelet instead."""
        self._configure()
        flags = ["--root-dir=/var/lib/kubelet", "--hostname-override=lone", f"--node-ip={ADDRESS}", "--v=2"]
        kubelet = str(ensure(["kubelet"], cache_dir=Path(cache_root())).path("kubelet"))
        self.start("kubelet", [kubelet, f"--config={self.folder}/kubelet.json", *flags])
        self.wait(lambda: self.pods() is not None, "the kubelet answers")

    def _configure(self) -> None:
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "podCIDR": "10.244.7.0/24",
            "failCgroupV1": False,
            "failSwapOn": False,
            "staticPodPath": str(self.folder / "manifests"),
            "fileCheckFrequency": "1s",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            **self.settings,
        }
        (self.folder / "kubelet.json").write_text(json.dumps(config))

    def ask(self, path: str, *words: str) -> str:
        """What the kubelet API answers; "" for an error."""
        return self.run("curl", "-sfk", "-m", "30", *words, f"https://{ADDRESS}:10250{path}", check=False)

    def pods(self) -> dict[str, Json] | None:
        """The pods by the names in their manifests; None while nobody answers."""
        text = self.ask("/pods")
        items = json.loads(text)["items"] or [] if text else None  # null: upstream has none
        return None if items is None else {str(one["metadata"]["name"]).removesuffix("-lone"): one for one in items}

    def put(self, name: str, *containers: Json, **spec: Any) -> None:
        """A static pod."""
        manifests = self.folder / "manifests"
        body = {"containers": list(containers), "terminationGracePeriodSeconds": 1, "dnsPolicy": "Default", **spec}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": body}
        (manifests / f".{name}.json").write_text(json.dumps(pod))
        (manifests / f".{name}.json").rename(manifests / f"{name}.json")

    def take(self, name: str) -> None:
        (self.folder / "manifests" / f"{name}.json").unlink()

        def gone() -> bool:
            pods = self.pods()
            return pods is not None and name not in pods

        self.wait(gone, f"{name} is gone")

    def until(self, name: str, wanted: Callable[[Json], object], what: str, seconds: float = 120) -> Json:
        """The status of the pod's first container once it is as wanted."""

        def found() -> Json | None:
            statuses = (self.pods() or {}).get(name, {}).get("status", {}).get("containerStatuses") or [{}]
            return statuses[0] if wanted(statuses[0]) else None

        status = self.wait(found, f"{name}: {what}", seconds)
        assert isinstance(status, dict)
        return status

    def ready(self, name: str) -> Json:
        return self.until(name, lambda status: status.get("ready"), "Ready")

    def shell(self, name: str, script: str) -> str:
        """What a command in the pod's first container, which is called main, prints."""
        command = "sh -c " + script.replace(" ", "${IFS}")  # the API takes one text, and splits it at spaces
        return self.ask(f"/run/default/{name}-lone/main", "-X", "POST", "--url-query", f"cmd={command}")

    def logs(self, name: str, query: str = "") -> str:
        return self.ask(f"/containerLogs/default/{name}-lone/main{query}")

    def wait(self, condition: Callable[[], object], what: str, seconds: float = 120) -> object:
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not in {seconds:g} s: {what}\n{self.ask('/pods')}{self.end_of_logs()}")
            time.sleep(0.2)
        return found


def busy(name: str = "main", **fields: Any) -> Json:
    """A container that says `begun` and serves `hello` at 8080."""
    script = "echo begun; mkdir /tmp/web; echo hello >/tmp/web/index.html; httpd -p 8080 -h /tmp/web; sleep 3600 & wait"
    return container(name, script=script, **fields)


@contextlib.contextmanager
def running(folder: Path, socket: str, settings: Mapping[str, Any]) -> Iterator[LoneNode]:
    """A machine without runtime and agent. All that runs on it ends with the block."""
    (folder / "manifests").mkdir()
    trees = cgroups.hierarchies()
    folders = cgroups.ensure(trees, _CGROUP)
    roots = [] if Path("/sys/fs/cgroup/cgroup.controllers").exists() else os.listdir("/sys/fs/cgroup")
    script = Path(__file__).with_name("lone_machine.sh")
    argv = ["unshare", *_SPACES, "--fork", "--kill-child", "--mount-proc", "--propagation=private", "bash", str(script)]
    process = subprocess.Popen(
        in_cgroups(folders, [*argv, str(folder)]),
        env={"PATH": _SYSTEM, "ADDRESS": ADDRESS, "CONTROLLERS": " ".join(roots)},
        start_new_session=True,
    )
    node = LoneNode(folder, 0, socket, dict(settings))
    try:
        node.wait(lambda: (folder / "is-up").exists() or process.poll() is not None, "the machine is up")
        assert process.poll() is None, "the machine did not come up"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        node.pid = int(children.read_text().split()[0])
        yield node
    finally:
        process.kill()  # its child goes with it, and with that every process of the machine
        process.wait()
        for one in node.programs.values():
            one.wait(60)
        cgroups.remove(trees, _CGROUP, timeout=60)


def start_containerd(node: LoneNode) -> tuple[Path, ...]:
    """containerd with our images: the folders of its programs and of runc."""
    names = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
    found = ensure(names, cache_dir=Path(cache_root()))
    programs, runc = found.path("ctr").parent, found.path("runc").parent
    text = containerd_config(restrict_oom_score_adj=not oom.may_lower_score(), durable=False)
    (node.folder / "containerd.toml").write_text(text)
    node.start("containerd", [f"{programs}/containerd", f"--config={node.folder}/containerd.toml"], (programs, runc))
    ctr = f"{programs}/ctr"
    node.wait(lambda: "Server:" in node.run(ctr, "version", check=False), "containerd answers")
    for archive in archives().values():
        node.run(ctr, "-n", "k8s.io", "images", "import", "--local", str(archive))
    return programs, runc


def archives() -> Mapping[str, Path]:
    cache = Path(cache_root())
    return ensure_images(IMAGES, cache_dir=cache, binaries=ensure(binaries_for(IMAGES), cache_dir=cache))


def program(variable: str, *names: str) -> Path | None:
    """The folder of programs that nobody builds here: named by an environment variable, or in PATH."""
    folder = os.environ.get(variable, "")
    found = [shutil.which(name, path=folder) if folder else shutil.which(name) for name in names]
    return Path(folder or os.path.dirname(str(found[0]))) if all(found) else None
