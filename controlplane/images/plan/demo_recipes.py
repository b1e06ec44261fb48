"""The images of a cluster that runs no suite, where upstream's tests ask for more than anybody else does.

Its busybox is the distribution's, which needs no compiler; agnhost goes without the program of upstream's busybox.
"""

from __future__ import annotations

from dataclasses import replace

from controlplane.images.model.recipe import FileOf, LayerRecipe, PackagedBusyBox, Recipe
from controlplane.images.plan.recipes import AGNHOST_NAME, BUSYBOX_NAME, RECIPES, SKELETON


def _without_other_images(layer: LayerRecipe) -> LayerRecipe:
    return replace(layer, sources=tuple(source for source in layer.sources if not isinstance(source, FileOf)))


_UPSTREAM = {recipe.name: recipe for recipe in RECIPES}
_AGNHOST = _UPSTREAM[AGNHOST_NAME]

DEMO_RECIPES: tuple[Recipe, ...] = (
    replace(
        _UPSTREAM[BUSYBOX_NAME],
        layers=(LayerRecipe("the distribution's busybox", (SKELETON, PackagedBusyBox())),),
        differs="the distribution's static busybox: no `nmeter`, no milliseconds in `date`, and its shell passes on no"
        " variable whose name is no identifier",
    ),
    replace(
        _AGNHOST,
        layers=tuple(map(_without_other_images, _AGNHOST.layers)),
        differs=f"{_AGNHOST.differs}; no /usr/bin/nmeter",
    ),
)
