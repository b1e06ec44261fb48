"""Upstream's e2e suite against kind's cluster, with its pods on the node that joined: programs, images, and a record of
where each pod ran.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from controlplane.binaries.work import BinDir, ensure
from controlplane.cluster.edge.roots import cache_root
from controlplane.images.edge.registry import UPSTREAM_REGISTRIES, hosts_toml
from controlplane.images.plan.recipes import RECIPES
from controlplane.images.work import binaries_for, ensure_images
from tests.kind.host import KUBECONFIG, inside, on_host

_REGISTRY = "127.0.0.1:5005"
_OWN = frozenset({"default", "kube-system", "kube-public", "kube-node-lease", "local-path-storage"})  # kind's
_ROW = "custom-columns=A:.metadata.namespace,B:.metadata.name,C:.spec.nodeName,D:.status.phase"


@dataclass(frozen=True)
class Choice:
    """Which specs: words of `conformance`, how many run at least, and how many of them have pods."""

    name: str
    words: tuple[str, ...]
    least: int
    least_with_pods: int = 7

    def __str__(self) -> str:
        return self.name


_BOTH = r"\[NodeConformance\].*\[Conformance\]|\[Conformance\].*\[NodeConformance\]"
NODE_CONFORMANCE = Choice("node-conformance", (f"--focus={_BOTH}", r"--skip=\[Serial\]|\[Disruptive\]"), 135, 110)


def suite_programs() -> BinDir:
    """The host cannot fetch what they are built from. Blocking: minutes when they are not built yet."""
    return ensure(("e2e.test", "ginkgo", "kubectl"), cache_dir=Path(cache_root()))


@contextmanager
def serving_images() -> Iterator[None]:
    """The host's containerd pulls the suite's images from a registry beside it, and nothing from anywhere else."""
    cache = Path(cache_root())
    names = [one.name for one in RECIPES]
    ensure_images(names, cache_dir=cache, binaries=ensure(binaries_for(names), cache_dir=cache))
    for name in UPSTREAM_REGISTRIES:
        folder = f"/etc/containerd/certs.d/{name}"
        text = hosts_toml(name, f"http://{_REGISTRY}", fallback=False)
        on_host("sh", "-c", f"mkdir -p {folder} && cat >{folder}/hosts.toml", text=text)
    words = (sys.executable, "-m", "controlplane.images.edge.registry", "--listen", _REGISTRY)
    with _beside(*words, "--images", cache / "images", output=Path(os.devnull)):
        yield


@contextmanager
def watched_pods(programs: BinDir, record: Path) -> Iterator[None]:
    """`record` gets a row for each change of a pod: the suite removes its pods, and their events too."""
    config = f"--kubeconfig={KUBECONFIG}"
    words = ("get", "pods", "-A", "--watch", "--no-headers", "-o", _ROW)
    with _beside(programs.path("kubectl"), config, *words, output=record):
        yield


@contextmanager
def _beside(*argv: str | Path, output: Path) -> Iterator[None]:
    """A command that runs on the host meanwhile."""
    with (
        output.open("w") as file,
        subprocess.Popen(inside(*argv), stdout=file, stderr=subprocess.STDOUT, start_new_session=True) as process,
    ):
        try:
            yield
            assert process.poll() is None, f"ended by itself: {argv}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # the shell, nsenter and what it started


def nodes_by_namespace(record: str) -> dict[str, set[str]]:
    """The nodes on which pods of each of the suite's namespaces ran, as `watched_pods` wrote them down."""
    found: dict[str, set[str]] = {}
    for row in record.splitlines():
        namespace, _, node, phase = row.split()
        if namespace not in _OWN and phase in ("Running", "Succeeded", "Failed"):
            found.setdefault(namespace, set()).add(node)
    return found
