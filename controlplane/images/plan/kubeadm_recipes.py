"""What kubeadm runs as static pods and addons, under the names of `kubeadm config images list`."""

from __future__ import annotations

from controlplane.binaries.model import KUBERNETES_VERSION
from controlplane.images.model.oci import RunConfig, symlink
from controlplane.images.model.recipe import Built, Files, LayerRecipe, Packages, Recipe
from controlplane.images.plan.layers import DEBIAN_LAYER, IPTABLES_LAYER, SKELETON, USERLAND

_COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_BIN = "usr/local/bin"

# One binary holds all three components and picks one by its own name, so one layer has three names for it.
_CONTROL_PLANE_LAYER = LayerRecipe(
    "control plane",
    (
        Built("nodewright-controlplane", f"{_BIN}/nodewright-controlplane"),
        Files(tuple(symlink(f"{_BIN}/{name}", "nodewright-controlplane") for name in _COMPONENTS)),
        SKELETON,
    ),
)

_KUBE_PROXY_LAYER = LayerRecipe("kube-proxy", (Built("kube-proxy", f"{_BIN}/kube-proxy"),))

KINDNET_NAME = "localhost/kindnet-like:v1"
_KINDNET_LAYER = LayerRecipe(
    "kindnet-like",
    (
        Packages(("containernetworking-plugins",), above=USERLAND),
        Built("kubectl", f"{_BIN}/kubectl"),
    ),
)


def component_images() -> tuple[str, ...]:
    """Names of the images of API server, controller manager and scheduler."""
    return tuple(f"registry.k8s.io/{name}:{KUBERNETES_VERSION}" for name in _COMPONENTS)


def _component(name: str) -> Recipe:
    return Recipe(
        f"registry.k8s.io/{name}:{KUBERNETES_VERSION}",
        (_CONTROL_PLANE_LAYER,),
        RunConfig(entrypoint=(f"/{_BIN}/{name}",), labels=(("nodewright.component", name),)),
        differs="one multi-call binary of the same modules; the image has no shell",
    )


KUBEADM_RECIPES: tuple[Recipe, ...] = (
    *(_component(name) for name in _COMPONENTS),
    Recipe(
        f"registry.k8s.io/kube-proxy:{KUBERNETES_VERSION}",
        (DEBIAN_LAYER, IPTABLES_LAYER, _KUBE_PROXY_LAYER),
        RunConfig(entrypoint=(f"/{_BIN}/kube-proxy",)),
        differs="iptables of the distribution in its nft form, without upstream's iptables-wrapper",
    ),
    Recipe(
        KINDNET_NAME,
        (DEBIAN_LAYER, _KINDNET_LAYER),
        RunConfig(cmd=("/bin/sh",)),
        differs="stands in for kindnetd, with a script for its program (controlplane/kubeadm/plan/kindnet.py)",
    ),
)
