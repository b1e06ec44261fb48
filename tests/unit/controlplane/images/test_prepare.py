"""What of an image is made before its binaries are there."""

from __future__ import annotations

from pathlib import Path

from controlplane.binaries.work import BinDir
from controlplane.images.edge.layout import read_archive
from controlplane.images.model.oci import RunConfig, file
from controlplane.images.model.recipe import Built, Files, LayerRecipe, Recipe
from controlplane.images.work import ensure_images, prepare_images

_BASE = LayerRecipe("base", (Files((file("etc/motd", "hello\n"),)),))
PLAIN = Recipe("example.test/plain:1", (_BASE,), RunConfig(cmd=("sh",)))
MADE = Recipe(
    "example.test/made:1",
    (LayerRecipe("other", (Files((file("etc/other", "x\n"),)),)), LayerRecipe("program", (Built("web", "web"),))),
    RunConfig(entrypoint=("/web",)),
)
RECIPES = {recipe.name: recipe for recipe in (PLAIN, MADE)}


def _layers(cache: Path) -> int:
    return len(list((cache / "images/layers").glob("*.tar")))


def test_what_needs_no_binary_is_made_first_and_used_later(tmp_path: Path) -> None:
    prepare_images(RECIPES, cache_dir=tmp_path, recipes=RECIPES)
    assert [path.parent.name.partition("-")[0] for path in tmp_path.glob("images/*/image.tar")] == ["plain"]
    assert _layers(tmp_path) == 2
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("images/layers/*.tar")}
    program = tmp_path / "bin/web"
    program.parent.mkdir()
    program.write_bytes(b"\x7fELF")
    found = ensure_images(
        RECIPES, cache_dir=tmp_path, binaries=BinDir({"web": program}), recipes=RECIPES, progress=lambda line: None
    )
    assert MADE.name in read_archive(found[MADE.name]).names
    assert _layers(tmp_path) == 3
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
