"""Builds image archives in the cache from recipes: each layer and each image once, and only when asked for."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from controlplane.binaries.edge.go_folders import go_folders
from controlplane.binaries.edge.toolchain import build_environment, find_go
from controlplane.binaries.model import KUBERNETES_VERSION, TABLE
from controlplane.binaries.work import MODULES, BinDir, goarch, key_of
from controlplane.images.edge.archive import entries_of_tree, read_layer, replacing, write_archive, write_layer
from controlplane.images.edge.compile import build_busybox, compile_c
from controlplane.images.edge.layout import read_archive
from controlplane.images.edge.packages import distribution, unpack_packages
from controlplane.images.edge.registry_tree import registry_entries
from controlplane.images.model.oci import Descriptor, Entry, file, make_image
from controlplane.images.model.recipe import (
    Built,
    BusyBox,
    CProgram,
    FileOf,
    Files,
    LayerRecipe,
    Packages,
    Recipe,
    RegistryTree,
    Source,
    Upstream,
)
from controlplane.images.plan.identity import identity
from controlplane.images.plan.known import BY_NAME, UPSTREAM_FILES
from controlplane.machine.edge.locks import cache_lock
from controlplane.prebuilt.work import Release, archives
from nodelib.command import run_sync
from nodelib.errors import NotFound

Progress = Callable[[str], None]
Recipes = Mapping[str, Recipe]

# Increase them when the same recipe should give different bytes.
_LAYER_FORMAT = "2"
_IMAGE_FORMAT = "3"
_COMPRESSED = False  # see docs/images.md: an uncompressed layer imports faster, and the cache is local


def binaries_for(names: Iterable[str], recipes: Recipes = BY_NAME) -> tuple[str, ...]:
    """The binaries that ensure_images(names) needs."""
    wanted: dict[str, None] = {}
    for name in names:
        recipe = _recipe(name, recipes)
        wanted |= dict.fromkeys([*recipe.binaries, *binaries_for(recipe.images, recipes)])
    return tuple(wanted)


def identities(names: Iterable[str], recipes: Recipes) -> dict[str, str]:
    """By the image's name: what it is made of, with the binaries that this version builds."""
    return {name: identity(name, recipes, _KeysOfBinaries(), goarch()) for name in names}


class _KeysOfBinaries(dict[str, str]):
    def __missing__(self, name: str) -> str:
        self[name] = key_of(TABLE[name])
        return self[name]


def released_images(
    names: Iterable[str], prebuilt: Release | None, recipes: Recipes, cache_dir: Path, progress: Progress
) -> dict[str, Path]:
    """Archives, compressed with xz, of those images that the release has, or that an earlier run took from one."""
    return archives(identities(names, recipes), prebuilt, cache_dir, progress)


def ensure_images(
    names: Iterable[str],
    *,
    cache_dir: Path,
    binaries: BinDir,
    progress: Progress = lambda line: None,
    recipes: Recipes = BY_NAME,
) -> dict[str, Path]:
    """The OCI archive of each named image, built if it is not cached. Blocking; milliseconds when all are there.

    Raises NotFound for a name without a recipe, Permanent when a package or a source cannot be fetched or built.
    """
    workshop = _Workshop(cache_dir, binaries, progress, recipes)
    return {name: workshop.image(_recipe(name, recipes)) for name in dict.fromkeys(names)}


def prepare_images(
    names: Iterable[str], *, cache_dir: Path, progress: Progress = lambda line: None, recipes: Recipes = BY_NAME
) -> None:
    """Everything of these images that needs no binary, so that it can be made while Go compiles. Blocking.

    Raises as ensure_images() does.
    """
    workshop = _Workshop(cache_dir, BinDir({}), progress, recipes)
    for recipe in (_recipe(name, recipes) for name in dict.fromkeys(names)):
        workshop.prepare(recipe)


def _recipe(name: str, recipes: Recipes) -> Recipe:
    try:
        return recipes[name]
    except KeyError:
        raise NotFound("no recipe for this image", obj=name, action=f"Known: {', '.join(recipes)}") from None


@dataclass(frozen=True, slots=True)
class _Workshop:
    cache_dir: Path
    binaries: BinDir
    progress: Progress
    recipes: Recipes

    @property
    def images(self) -> Path:
        return self.cache_dir / "images"

    def image(self, recipe: Recipe) -> Path:
        keys = [self.layer_key(layer) for layer in recipe.layers]
        key = _digest(_IMAGE_FORMAT, goarch(), recipe.name, *recipe.aliases, repr(recipe.run), *keys)
        short = recipe.name.rpartition("/")[2].replace(":", "-")
        archive = self.images / f"{short}-{key}" / "image.tar"
        if archive.exists():
            os.utime(archive)  # the newest archive of a name is the one in use
            return archive
        with cache_lock(archive.with_name(".lock"), self.progress, f"another run is building {recipe.name}"):
            if not archive.exists():
                self.progress(f"building image {recipe.name}")
                layers = [self.layer(layer, key) for layer, key in zip(recipe.layers, keys, strict=True)]
                image = make_image([recipe.name, *recipe.aliases], recipe.run, [d for d, _ in layers], goarch())
                write_archive(image, {descriptor.digest: path for descriptor, path in layers}, archive)
        return archive

    def prepare(self, recipe: Recipe) -> None:
        if not any(layer.needs_binaries for layer in recipe.layers):
            self.image(recipe)
            return
        for layer in recipe.layers:
            if not layer.needs_binaries:
                self.layer(layer, self.layer_key(layer))
            elif found := next((source for source in layer.sources if isinstance(source, Upstream)), None):
                self._upstream(found)

    def layer_key(self, layer: LayerRecipe) -> str:
        return _digest(_LAYER_FORMAT, str(_COMPRESSED), *(self._source_key(source) for source in layer.sources))

    def _source_key(self, source: Source) -> str:
        match source:
            case Built():
                binary = self.binaries.path(source.binary).resolve()
                status = binary.stat()
                return f"{source!r} {binary.parent.name} {status.st_size} {status.st_mtime_ns}"
            case Upstream():
                return f"{source!r} {KUBERNETES_VERSION}"
            case Packages() | BusyBox() | CProgram():
                return f"{source!r} {distribution()} {goarch()}"
            case RegistryTree() | FileOf():
                return f"{source!r} {self.image_key(source.image)}"
            case Files():
                return repr(source)

    def image_key(self, name: str) -> str:
        recipe = _recipe(name, self.recipes)
        return _digest(repr(recipe.run), *(self.layer_key(layer) for layer in recipe.layers))

    def layer(self, layer: LayerRecipe, key: str) -> tuple[Descriptor, Path]:
        blob = self.images / "layers" / f"{key}.tar"
        facts = blob.with_suffix(".json")
        with cache_lock(blob.with_suffix(".lock"), self.progress, f"another run is building the layer {layer.title}"):
            if not (blob.exists() and facts.exists()):
                with self._work() as work:
                    entries = [
                        entry
                        for number, source in enumerate(layer.sources)
                        for entry in self.entries(source, work / str(number))
                    ]
                    descriptor = write_layer(entries, blob, compress=_COMPRESSED)
                with replacing(facts) as handle:
                    handle.write(json.dumps(asdict(descriptor)).encode())
        return Descriptor(**json.loads(facts.read_text())), blob

    def entries(self, source: Source, work: Path) -> Iterable[Entry]:
        match source:
            case Files():
                return source.entries
            case Built():
                return [file(source.path, self.binaries.path(source.binary).resolve(), source.mode)]
            case Upstream():
                return [file(source.path, self._upstream(source), source.mode)]
            case Packages():
                unpack_packages(source.names, source.above, work, self.cache_dir / "debs", self.progress)
                return [*entries_of_tree(work), *source.links]
            case CProgram():
                compile_c(source.source, work / "out", self.progress)
                return [file(source.path, work / "out", 0o755)]
            case BusyBox():
                work.mkdir()
                return build_busybox(source.options, work, self.progress)
            case RegistryTree():
                return registry_entries(
                    read_archive(self.image(_recipe(source.image, self.recipes))), source.name, source.tag
                )
            case FileOf():
                recipe = _recipe(source.image, self.recipes).layers[0]
                _, layer = self.layer(recipe, self.layer_key(recipe))
                return [file(source.path, *read_layer(layer, source.source))]

    def _upstream(self, source: Upstream) -> Path:
        """The file, kept in the cache: the module's source is not."""
        kept = self.images / "upstream" / KUBERNETES_VERSION
        if not (kept / source.source).exists():
            go = find_go(self.cache_dir, self.progress)
            argv = [str(go), "mod", "download", "-json", f"k8s.io/kubernetes@{KUBERNETES_VERSION}"]
            with go_folders(self.cache_dir, self.progress) as folders:
                done = run_sync(argv, timeout=900, env=build_environment(go, folders), cwd=str(MODULES / "cluster"))
                module = Path(json.loads(done.stdout)["Dir"])
                for name in UPSTREAM_FILES:
                    with replacing(kept / name) as handle:
                        handle.write((module / name).read_bytes())
        return kept / source.source

    @contextmanager
    def _work(self) -> Iterator[Path]:
        self.images.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".work-", dir=self.images))
        try:
            yield work
        finally:
            shutil.rmtree(work)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
