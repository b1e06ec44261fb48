"""What a recipe consists of: sources make layers, layers and a run configuration make an image. Facts only."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.images.model.oci import Entry, RunConfig


@dataclass(frozen=True, slots=True)
class Files:
    """Entries given directly."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Built:
    """A binary of controlplane.binaries at a path of the image."""

    binary: str
    path: str
    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class Upstream:
    """A file of the k8s.io/kubernetes module, `source` relative to its root."""

    source: str
    path: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Packages:
    """Distribution packages and their dependencies, unpacked but not configured. `above`: packages of a lower layer."""

    names: tuple[str, ...]
    above: tuple[str, ...] = ()
    links: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class CProgram:
    """One C file, compiled statically when the image is built."""

    source: str
    path: str


@dataclass(frozen=True, slots=True)
class BusyBox:
    """busybox from the distribution's source package: its default configuration with these options changed."""

    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RegistryTree:
    """Another image, laid out as agnhost's fake-registry-server serves it (repository `name`, tag `tag`)."""

    image: str
    name: str
    tag: str


@dataclass(frozen=True, slots=True)
class FileOf:
    """A file of another image's only layer."""

    image: str
    source: str
    path: str


Source = Files | Built | Upstream | Packages | CProgram | BusyBox | RegistryTree | FileOf


@dataclass(frozen=True, slots=True)
class LayerRecipe:
    """One layer; recipes with the same layer share its blob. `title` is for people."""

    title: str
    sources: tuple[Source, ...]

    @property
    def needs_binaries(self) -> bool:
        """Whether it cannot be made before Go has built something, here or in another image."""
        return any(isinstance(source, Built | RegistryTree | FileOf) for source in self.sources)


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image. `differs` says what a user of upstream's image would find different here."""

    name: str
    layers: tuple[LayerRecipe, ...]
    run: RunConfig
    differs: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def binaries(self) -> tuple[str, ...]:
        """Names of the binaries in the image."""
        return tuple(s.binary for layer in self.layers for s in layer.sources if isinstance(s, Built))

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the other images that parts of it come from."""
        return tuple(s.image for layer in self.layers for s in layer.sources if isinstance(s, RegistryTree | FileOf))
