"""Every recipe by name, and the sets of images that clusters ask for."""

from __future__ import annotations

from controlplane.images.model.recipe import Recipe, Upstream
from controlplane.images.plan import recipes
from controlplane.images.plan.addon_recipes import ADDON_RECIPES
from controlplane.images.plan.csi_recipes import CSI_RECIPES
from controlplane.images.plan.image_names import (
    AGNHOST_NAME,
    BUSYBOX_NAME,
    COREDNS_NAME,
    ETCD_NAME,
    OLD_BUSYBOX_NAME,
    PAUSE_NAME,
)
from controlplane.images.plan.kubeadm_recipes import KUBEADM_RECIPES

RECIPES: tuple[Recipe, ...] = (
    *(*recipes.RECIPES, *CSI_RECIPES, *recipes.NODE_RECIPES, *recipes.POLICY_RECIPES),
    *(*KUBEADM_RECIPES, *ADDON_RECIPES),
)
BY_NAME: dict[str, Recipe] = {name: recipe for recipe in RECIPES for name in (recipe.name, *recipe.aliases)}

DEMO: tuple[str, ...] = (PAUSE_NAME, COREDNS_NAME, AGNHOST_NAME, BUSYBOX_NAME)
CONFORMANCE: tuple[str, ...] = tuple(recipe.name for recipe in (*recipes.RECIPES, *CSI_RECIPES))
NODE_SUITE: tuple[str, ...] = (
    *(recipe.name for recipe in (*recipes.RECIPES, *recipes.NODE_RECIPES)),
    OLD_BUSYBOX_NAME,  # of the specs of MemoryQoS
)
KUBEADM: tuple[str, ...] = (*DEMO, ETCD_NAME, *(recipe.name for recipe in KUBEADM_RECIPES))
UPSTREAM_FILES: tuple[str, ...] = tuple(
    dict.fromkeys(
        source.source
        for recipe in RECIPES
        for layer in recipe.layers
        for source in layer.sources
        if isinstance(source, Upstream)
    )
)
