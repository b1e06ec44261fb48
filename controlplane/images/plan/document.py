"""Generates docs/images.md from the recipes: `python -m controlplane.images.plan.document > docs/images.md`."""

from __future__ import annotations

from controlplane.images.plan.known import DEMO, RECIPES

_HEAD = """# Images

The images of a cluster and of upstream's suites, built on this machine without Docker from Go modules, distribution
packages and a few lines of our own (`controlplane/images/plan/recipes.py`). The names are upstream's, the contents are
not: each row says where a user of upstream's image would find a difference. This page is generated from the recipes.

| image | in the demo | made of | differs from upstream's |
| --- | --- | --- | --- |
"""

_TAIL = """
Every byte is determined by the inputs (times, owners and order are fixed): the same inputs give the same digests. The
inputs are the distribution's packages at the time of the build, the Go toolchain and modules, and the C compiler.
What was built stays in the cache until its recipe, its binaries or the distribution's release change; to have newer
packages, remove `images` and `debs` from the cache.

Layers are uncompressed tars, because nothing travels here. agnhost (233 MB), `ctr images import --local` of containerd
2.4.2 on two busy cores: 4.2 s plain, 10.0 s with gzip layers; gzip takes 50 s to make. With the demo's four images it
was 5.5 s, or 3.4 s with `--local`, on idle cores. So `up` imports nothing: a containerd root that holds the images is
made once per set of images (`seeds` in the cache, 6 to 7 s) and cloned for each node in 0.04 s. The files of layers are
hard links, which lie outside of the node's tree and are mounted read-only in its containerd root; databases and blobs
are copies. A root that no run has used for three days is removed when another is made.
"""


def images_page() -> str:
    """The whole page in Markdown."""
    rows = []
    for recipe in RECIPES:
        names = ", ".join(f"`{name}`" for name in (recipe.name, *recipe.aliases))
        layers = " + ".join(layer.title for layer in recipe.layers)
        rows.append(f"| {names} | {'yes' if recipe.name in DEMO else ''} | {layers} | {recipe.differs} |")
    return "\n".join((_HEAD + "\n".join(rows), _TAIL))


if __name__ == "__main__":
    print(images_page(), end="")
