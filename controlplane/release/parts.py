"""What others wrote in a release, and under which licences: Go modules, Python packages, Debian packages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from controlplane.binaries.model import Binary
from controlplane.binaries.work import ensure
from controlplane.images.edge.packages import resolved
from controlplane.images.model.recipe import BusyBox, CProgram, Packages
from controlplane.images.plan.known import BY_NAME
from controlplane.images.work import binaries_for
from controlplane.progress import Say
from controlplane.release.edge import sources
from controlplane.release.edge.archives import digest_of
from controlplane.release.model import Component, Notice
from controlplane.release.plan import build_info, notices

_STATIC = ("libc6-dev", "libgcc-12-dev", "libgcc-14-dev")  # in what is linked statically: pause, busybox and runc
_LIBRARIES = (*_STATIC, "libseccomp-dev")  # of these, in Go programs with C in them
_DOCUMENTS = Path("/usr/share/doc")


@dataclass(frozen=True, slots=True)
class Found:
    """The parts, and the texts for the wheels' licenses folder by file name."""

    components: tuple[Component, ...]
    notices: Mapping[str, str]


def python_wheels(lock: Path, minors: Iterable[str], work: Path, python: str) -> list[Path]:
    """The wheels of the dependencies for each version of Python, each file once."""
    key = digest_of(lock)[:16]
    found: dict[str, Path] = {}
    for minor in minors:
        for path in sources.python_wheels(lock, minor, work / "wheels" / f"{minor}-{key}", python):
            found.setdefault(path.name, path)
    return [found[name] for name in sorted(found)]


def collect(
    programs: Mapping[str, tuple[Binary, Path]],
    images: Mapping[str, Path],
    wheels: Sequence[Path],
    cache_dir: Path,
    say: Say,
) -> Found:
    """Everything in the programs, the images and the wheels."""
    in_images = binaries_for(images, BY_NAME)
    built = ensure(in_images, cache_dir=cache_dir, progress=say)
    executables = {name: path for name, (_, path) in programs.items()}
    executables |= {name: built.path(name).resolve() for name in in_images}
    go, go_texts = _go(executables, sources.Go(cache_dir, say))
    python, python_texts = _python(wheels)
    debian, debian_texts = _debian(images, cache_dir / "debs")
    linked, linked_texts = libraries([name for name, (one, _) in programs.items() if one.c])
    texts = {
        "go-modules.txt": notices.text("Licences of the Go modules in these programs", go_texts),
        "python-packages.txt": notices.text("Licences of the Python packages that nodewright uses", python_texts),
        "debian-packages.txt": notices.text(
            "Copyright files of the Debian packages in the images and programs", (*debian_texts, *linked_texts)
        ),
    }
    return Found((*go, *python, *debian, *linked), texts)


def _go(executables: Mapping[str, Path], go: sources.Go) -> tuple[list[Component], list[Notice]]:
    found: list[Component] = []
    texts: dict[str, Notice] = {}
    for program, path in executables.items():
        toolchain, modules = build_info.modules(go.build_info(path))
        found.append(Component("golang", "std", toolchain, (program,)))
        texts["std"] = Notice(f"Go {toolchain}", sources.texts_in(go.root, notices.is_notice))
        for one in modules:
            found.append(Component("golang", one.path, one.version, (program,)))
            name = f"{one.path} {one.version}"
            if name not in texts:
                texts[name] = Notice(name, go.texts_of(build_info.in_cache(one), notices.is_notice))
    return found, list(texts.values())


def libraries(programs: Sequence[str]) -> tuple[list[Component], list[Notice]]:
    """What these programs, which have C in them, were linked with on this machine."""
    installed = sources.installed_versions(_LIBRARIES).items() if programs else ()
    found = [Component("deb", name, version, tuple(programs)) for name, version in installed]
    texts = [Notice(f"{one.name}_{one.version}", _copyright(one.name)) for one in found]
    return found, texts


def _copyright(package: str) -> tuple[tuple[str, str], ...]:
    return sources.texts_in(_DOCUMENTS / package, notices.is_notice)


def _python(wheels: Sequence[Path]) -> tuple[list[Component], list[Notice]]:
    found: list[Component] = []
    texts: dict[str, Notice] = {}
    for path in wheels:
        one = sources.read_wheel(path, notices.is_notice)
        found.append(
            Component(
                "pypi",
                one.name.lower().replace("_", "-"),
                one.version,
                (path.name,),
                digest_of(path),
                one.licence,
                {"file_name": path.name},
            )
        )
        texts.setdefault(one.name, Notice(f"{one.name} {one.version}", one.texts))
    return found, list(texts.values())


def _debian(images: Mapping[str, Path], debs: Path) -> tuple[list[Component], list[Notice]]:
    found: list[Component] = []
    files: dict[str, None] = {}
    for image, archive in images.items():
        for layer in BY_NAME[image].layers:
            for source in layer.sources:
                if isinstance(source, Packages):
                    names = resolved(source.names, source.above, debs)
                    files |= dict.fromkeys(names)
                    found += [_deb(name, image) for name in names]
                elif isinstance(source, BusyBox):
                    found.append(Component("generic", "busybox", _busybox_version(archive), (image,)))
                if isinstance(source, BusyBox | CProgram):
                    static = sources.installed_versions(_STATIC).items()
                    found += [Component("deb", name, version, (image,)) for name, version in static]
    with ThreadPoolExecutor(max_workers=2) as pool:
        texts = pool.map(lambda name: sources.debian_copyright(debs / name), files)
        notes = [
            Notice(name.removesuffix(".deb").replace("%3a", ":"), (("copyright", text),) if text else ())
            for name, text in zip(files, texts, strict=True)
        ]
    return found, notes


def _deb(file: str, image: str) -> Component:
    name, version, architecture = file.removesuffix(".deb").split("_")
    return Component("deb", name, version.replace("%3a", ":"), (image,), qualifiers={"arch": architecture})


def _busybox_version(archive: Path) -> str:
    found = re.search(rb"BusyBox v(\d[\w.]{0,20})", archive.read_bytes())
    return found[1].decode() if found else "unknown"
