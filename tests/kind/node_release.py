"""What a node image of kind's is made from: programs for its base, and a server tarball as a release has it.

    python -m tests.kind.node_release programs FOLDER
    python -m tests.kind.node_release tarball MODULE KINDNETD TARBALL

`kind build node-image --type file` takes the tarball. It has the builds of this project where a release has upstream's,
and beside the control plane's images all others that kind would pull: kind looks only for the names of an archive's
first image, so here that one has all names. MODULE: the sources of sigs.k8s.io/kind. KINDNETD: the program of its pod
network.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from controlplane.binaries.model import KUBERNETES_VERSION
from controlplane.binaries.work import ensure
from controlplane.cluster.edge.roots import cache_root
from controlplane.images.edge.archive import merge_archives
from controlplane.images.edge.layout import read_archive
from controlplane.images.model.oci import RunConfig, file
from controlplane.images.model.recipe import Built, Files, LayerRecipe, Recipe
from controlplane.images.plan.image_names import COREDNS_NAME, ETCD_NAME, PAUSE_NAME
from controlplane.images.plan.known import BY_NAME
from controlplane.images.plan.kubeadm_recipes import KUBEADM_RECIPES, component_images
from controlplane.images.plan.layers import BUSYBOX_LAYER, DEBIAN_LAYER, IPTABLES_LAYER, SKELETON
from controlplane.images.work import binaries_for, ensure_images

BASE = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "crictl", "kind")
PROGRAMS = ("kubeadm", "kubelet", "kubectl")
_BUILD = "pkg/build/nodeimage"
_PAUSE = re.compile(r'^\s*sandbox_image = "(.+)"$', re.MULTILINE)


def constant(module: Path, source: str, name: str) -> str:
    """The value of a string constant in kind's sources: the names of its images change with its version."""
    found = re.search(rf'^const {name} = "(.+)"$', (module / _BUILD / source).read_text(), re.MULTILINE)
    assert found, f"{source} has no {name}"
    return found[1]


def recipes(module: Path, kindnetd: Path) -> dict[str, Recipe]:
    """Every image of a node by its name."""
    sandbox = _PAUSE.search((module / "images/base/files/etc/containerd/config.toml").read_text())
    assert sandbox
    key = hashlib.sha256(kindnetd.read_bytes()).hexdigest()[:16]
    network = LayerRecipe(f"kindnetd {key}", (Files((file("bin/kindnetd", kindnetd, 0o755),)),))
    provisioner = "local-path-provisioner"
    storage = LayerRecipe(provisioner, (Built(provisioner, f"usr/local/bin/{provisioner}"), SKELETON))
    wanted = (
        *(BY_NAME[name] for name in (COREDNS_NAME, ETCD_NAME, *component_images())),
        *(one for one in KUBEADM_RECIPES if "kube-proxy" in one.name),
        replace(BY_NAME[PAUSE_NAME], name=sandbox[1]),
        Recipe(
            constant(module, "const_cni.go", "kindnetdImage"),
            (DEBIAN_LAYER, IPTABLES_LAYER, network),
            RunConfig(cmd=("/bin/kindnetd",)),
        ),
        Recipe(
            constant(module, "const_storage.go", "storageProvisionerImage"),
            (storage,),
            RunConfig(entrypoint=(f"/usr/local/bin/{provisioner}",)),
        ),
        Recipe(constant(module, "const_storage.go", "storageHelperImage"), (BUSYBOX_LAYER,), RunConfig(cmd=("sh",))),
    )
    return {one.name: one for one in wanted}


def write(module: Path, kindnetd: Path, tarball: Path) -> None:
    """Write the tarball. Blocking: minutes when nothing is built yet."""
    wanted, cache = recipes(module, kindnetd), Path(cache_root())
    binaries = ensure((*PROGRAMS, *binaries_for(wanted, wanted)), cache_dir=cache, progress=print)
    images = ensure_images(wanted, cache_dir=cache, binaries=binaries, recipes=wanted, progress=print)
    with tempfile.TemporaryDirectory(dir=tarball.parent) as work:
        every, least = Path(work, "every.tar"), Path(work, "least.tar")
        _archive(images.values(), every)
        _archive([next(path for name, path in images.items() if "pause" in name)], least)
        # One archive with all of them, as they share layers.
        archives = {"kube-apiserver": every} | dict.fromkeys(
            ("kube-controller-manager", "kube-scheduler", "kube-proxy"), least
        )
        _pack(tarball, {name: binaries.path(name).resolve() for name in PROGRAMS}, archives, Path(work))


def _archive(sources: Iterable[Path], target: Path) -> None:
    """An OCI archive with the names of its images where Docker's archives have them, too."""
    merge_archives(sources, target)
    found = read_archive(target)
    digest = next(iter(found.names.values()))["digest"]
    manifest = found.document(digest)
    layers = [_blob(one["digest"]) for one in manifest["layers"]]
    names = [name for name in found.names if "@" not in name]
    document = [{"Config": _blob(manifest["config"]["digest"]), "RepoTags": names, "Layers": layers}]
    content = target.with_suffix(".json")
    content.write_text(json.dumps(document))
    with tarfile.open(target, "a") as tar:
        tar.add(content, "manifest.json")


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _pack(tarball: Path, programs: Mapping[str, Path], archives: Mapping[str, Path], work: Path) -> None:
    version = work / "version"
    version.write_text(f"{KUBERNETES_VERSION}\n")
    folder = "kubernetes/server/bin"
    # kind reads nothing but gzip; what it unpacks at once need not be small.
    with tarfile.open(tarball, "w:gz", compresslevel=0) as tar:
        tar.add(version, "kubernetes/version")
        for name, path in programs.items():
            tar.add(path, f"{folder}/{name}")
        for name, path in archives.items():
            tar.add(path, f"{folder}/{name}.tar")


def link_programs(folder: Path) -> None:
    """Those of the base, and kind itself, in one folder. Blocking: minutes when nothing is built yet."""
    folder.mkdir(parents=True, exist_ok=True)
    binaries = ensure(BASE, cache_dir=Path(cache_root()), progress=print)
    for name in BASE:
        (folder / name).unlink(missing_ok=True)
        os.link(binaries.path(name).resolve(), folder / name)


if __name__ == "__main__":
    if sys.argv[1] == "programs":
        link_programs(Path(sys.argv[2]))
    else:
        write(Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
