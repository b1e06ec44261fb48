"""Images of the addons (`up --addons`)."""

from __future__ import annotations

from controlplane.images.model.oci import RunConfig, directory
from controlplane.images.model.recipe import Built, Files, LayerRecipe, Recipe

METRICS_SERVER_NAME = "registry.k8s.io/metrics-server/metrics-server:v0.9.0"
TRAEFIK_NAME = "docker.io/library/traefik:v3.7.9"

ADDON_RECIPES: tuple[Recipe, ...] = (
    Recipe(
        METRICS_SERVER_NAME,
        (
            LayerRecipe(
                "metrics-server",
                (Built("metrics-server", "metrics-server"), Files((directory("etc"), directory("tmp", 0o1777)))),
            ),
        ),
        RunConfig(entrypoint=("/metrics-server",), user="65534", ports=("10250/tcp",)),
        differs="built from its module; no base image",
    ),
    Recipe(
        TRAEFIK_NAME,
        (LayerRecipe("traefik", (Built("traefik", "traefik"), Files((directory("etc"), directory("tmp", 0o1777))))),),
        RunConfig(entrypoint=("/traefik",), user="65532", ports=("80/tcp",)),
        differs="the binary alone, built from its module: no entrypoint script, no certificates, an empty dashboard",
    ),
)
