"""CRI-O on a lone node: the programs of this machine, and the images of the cache from a registry on its loopback."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from controlplane.binaries.work import ensure
from controlplane.cluster.edge.roots import cache_root
from tests.netns.lone_node import PAUSE, PROJECT, LoneNode, archives

PROGRAMS = ("crio", "pinns", "conmon")
SOCKET = "/run/crio/crio.sock"
_REGISTRY = "127.0.0.1:5005"

# `events`: whether CRI-O tells what becomes of containers, or its list has to be read again and again, as by default.
_CONFIG = """
[crio]
root = "/var/lib/crio"
runroot = "/run/crio/storage"
version_file = "/run/crio/version"
clean_shutdown_file = "/run/crio/clean.shutdown"
[crio.api]
listen = "{socket}"
[crio.runtime]
default_runtime = "runc"
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
pinns_path = "{programs}/pinns"
namespaces_dir = "/run/crio/ns"
enable_pod_events = {events}
[crio.runtime.runtimes.runc]
runtime_path = "{runc}"
runtime_root = "/run/crio/runc"
monitor_path = "{programs}/conmon"
[crio.image]
pause_image = "{pause}"
signature_policy = "{folder}/policy.json"
[crio.network]
network_dir = "/etc/cni/net.d"
plugin_dirs = ["/opt/cni/bin"]
[crio.nri]
enable_nri = false
"""
_MIRROR = """
[[registry]]
prefix = "registry.k8s.io"
location = "registry.k8s.io"
[[registry.mirror]]
location = "{registry}"
insecure = true
"""


def start(node: LoneNode, programs: Path, *, events: bool) -> None:
    """Start the registry and CRI-O."""
    assert len({path.parent.parent for path in archives().values()}) == 1
    images = next(iter(archives().values())).parent.parent
    argv = [sys.executable, "-m", "controlplane.images.edge.registry", f"--listen={_REGISTRY}", f"--images={images}"]
    node.start("registry", argv, PYTHONPATH=str(PROJECT))
    runc = ensure(["runc"], cache_dir=Path(cache_root())).path("runc")
    words = {"socket": SOCKET, "programs": programs, "runc": runc, "pause": PAUSE, "folder": node.folder}
    (node.folder / "crio.conf").write_text(_CONFIG.format(**words, events=str(events).lower()))
    (node.folder / "registries.conf").write_text(_MIRROR.format(registry=_REGISTRY))
    (node.folder / "policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    start_again(node, programs)


def start_again(node: LoneNode, programs: Path) -> None:
    none = f"{node.folder}/none"
    mirrors = {"CONTAINER_REGISTRIES_CONF": f"{node.folder}/registries.conf", "CONTAINER_REGISTRIES_CONF_DIR": none}
    argv = [f"{programs}/crio", f"--config={node.folder}/crio.conf", f"--config-dir={none}"]
    node.start("crio", argv, (programs,), **mirrors)
    node.wait(lambda: node.run("ls", SOCKET, check=False), "CRI-O listens")
