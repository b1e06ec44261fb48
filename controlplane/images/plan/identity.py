"""What decides an image, wherever it is built: a release says it, and a machine compares. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from controlplane.binaries.model import KUBERNETES_VERSION
from controlplane.images.model.recipe import Recipe


def identity(name: str, recipes: Mapping[str, Recipe], binaries: Mapping[str, str], architecture: str) -> str:
    """The key of an image by its recipe and the keys of its binaries.

    Unlike the cache's own key it leaves out the distribution: its packages are in the image and do not matter to the
    machine that only runs it. Raises KeyError for an image without a recipe, or a binary without a key.
    """
    recipe = recipes[name]
    parts = [architecture, KUBERNETES_VERSION, repr(recipe)]
    parts += [f"{one} {binaries[one]}" for one in recipe.binaries]
    parts += [identity(one, recipes, binaries, architecture) for one in recipe.images]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
