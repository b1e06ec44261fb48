"""docs/images.md, generated from the recipes: `python -m controlplane.images.document > docs/images.md`."""

from __future__ import annotations

from controlplane.images.recipes import DEMO, RECIPES

_HEAD = """# Images

The images of a cluster and of upstream's suites, built on this machine without Docker from Go modules, distribution
packages and a few lines of our own (`controlplane/images/recipes.py`). The names are upstream's, the contents are not:
each row says where a user of upstream's image would find a difference. This page is generated from the recipes.

| image | in the demo | made of | differs from upstream's |
| --- | --- | --- | --- |
"""

_TAIL = """
Layers are uncompressed tars and every byte is determined by the inputs (times, owners and order are fixed), so the same
inputs give the same digests on every machine. The inputs are the distribution's packages at the time of the build,
the Go toolchain and modules, and the C compiler.
"""


def images_page() -> str:
    """The whole page in Markdown."""
    rows = []
    for recipe in RECIPES:
        names = ", ".join(f"`{name}`" for name in (recipe.name, *recipe.aliases))
        layers = " + ".join(layer.title for layer in recipe.layers)
        rows.append(f"| {names} | {'yes' if recipe.name in DEMO else ''} | {layers} | {recipe.differs} |")
    return _HEAD + "\n".join(rows) + "\n" + _TAIL


if __name__ == "__main__":
    print(images_page(), end="")
