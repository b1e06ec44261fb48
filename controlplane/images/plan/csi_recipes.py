"""What the CSI Mock and DRA specs of e2e.test run: a driver or a proxy, and upstream's helpers of CSI drivers.

Names and tags are those of test/e2e/testing-manifests/storage-csi/mock of Kubernetes 1.37.1. The helpers have the
versions of controlplane/go/csi, as in a cluster with `--storage`.
"""

from __future__ import annotations

from controlplane.images.model.oci import RunConfig, directory
from controlplane.images.model.recipe import Built, Files, LayerRecipe, Recipe
from controlplane.images.plan.image_names import OLD_BUSYBOX_NAME
from controlplane.images.plan.layers import BUSYBOX_LAYER

_SIG = "registry.k8s.io/sig-storage"
_EMPTY = Files((directory("etc"), directory("tmp", 0o1777)))


def _helper(name: str, tag: str, differs: str) -> Recipe:
    return Recipe(
        f"{_SIG}/{name}:{tag}",
        (LayerRecipe(name, (Built(name, name), _EMPTY)),),
        RunConfig(entrypoint=(f"/{name}",)),
        differs=differs,
    )


def _newer(name: str, tag: str, version: str) -> Recipe:
    return _helper(name, tag, f"{version}, built from its module; no base image")


CSI_RECIPES: tuple[Recipe, ...] = (
    Recipe(
        f"{_SIG}/hostpathplugin:v1.17.1",
        (BUSYBOX_LAYER, LayerRecipe("hostpathplugin", (Built("hostpathplugin", "hostpathplugin"),))),
        RunConfig(entrypoint=("/hostpathplugin",)),
        differs="a program of our own: its proxy does what upstream's does, its driver is the mock of upstream's tests,"
        " which makes folders and no mounts; flags that only csi-hostpath needs are refused; busybox userland instead"
        " of Alpine's",
    ),
    _helper(
        "csi-node-driver-registrar",
        "v2.17.0",
        "a program of our own, which registers a driver in the same way; no other modes, metrics or profiles",
    ),
    _newer("csi-attacher", "v4.12.0", "v4.13.0"),
    _newer("csi-provisioner", "v6.3.0", "v6.4.0"),
    _newer("csi-resizer", "v2.2.0", "v2.3.0"),
    _newer("csi-snapshotter", "v8.6.0", "v8.7.0"),
    Recipe(
        OLD_BUSYBOX_NAME,
        (BUSYBOX_LAYER,),
        # The CRI gives an image with several names any of them in a container's status: this is one of its own.
        RunConfig(cmd=("sh",), labels=(("nodewright.fixture", "busybox:1.36.1-1"),)),
        differs="as busybox:1.37.0-2",
    ),
)
