"""Reads what a release is made of: modules of the programs, licence texts, Python packages, Debian packages."""

from __future__ import annotations

import email
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.binaries.edge.toolchain import build_environment, find_go
from nodelib.command import run_sync

Progress = Callable[[str], None]

_LARGEST_TEXT = 512 << 10
_COPYRIGHT = 'dpkg-deb --fsys-tarfile "$0" | tar --extract --to-stdout "./usr/share/doc/$1/copyright"'
_PIP_TIMEOUT = 900.0
# Debian 12 has glibc 2.36: wheels for that and older ones.
_PLATFORMS = (*(f"manylinux_2_{minor}" for minor in range(36, 16, -1)), "manylinux2014", "manylinux2010")


@dataclass(frozen=True, slots=True)
class PythonWheel:
    """A wheel of a dependency, with its metadata."""

    path: Path
    name: str
    version: str
    licence: str
    texts: tuple[tuple[str, str], ...]


class Go:
    """The Go toolchain, and the module caches of nodewright and of this user."""

    def __init__(self, cache_dir: Path, progress: Progress) -> None:
        self._go = find_go(cache_dir, progress)
        self._environment = build_environment(self._go, {})
        asked = [str(self._go), "env", "GOROOT", "GOMODCACHE"]
        root, modules = run_sync(asked, env=self._environment).text.splitlines()
        self.root = Path(root)
        self._caches = (cache_dir / "go-mod", Path(modules))

    def build_info(self, program: Path) -> str:
        """What `go version -m` prints of a program."""
        return run_sync([str(self._go), "version", "-m", str(program)], env=self._environment).text

    def texts_of(self, module: str, wanted: Callable[[str], bool]) -> tuple[tuple[str, str], ...]:
        """Files at the root of a module (`path@version` as in the cache) from its archive, none if it is not there."""
        path, _, version = module.rpartition("@")
        for cache in self._caches:
            archive = cache / "cache" / "download" / path / "@v" / f"{version}.zip"
            try:
                with zipfile.ZipFile(archive) as opened:
                    return tuple(sorted(_at_root(opened, wanted)))
            except (OSError, zipfile.BadZipFile):
                continue
        return ()


def _at_root(archive: zipfile.ZipFile, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    for info in archive.infolist():
        name = info.filename.rpartition("@")[2].partition("/")[2]  # after path@version/
        if "/" not in name and wanted(name):
            with archive.open(info) as file:
                yield name, file.read(_LARGEST_TEXT).decode(errors="replace")


def texts_in(folder: Path, wanted: Callable[[str], bool]) -> tuple[tuple[str, str], ...]:
    """The files there whose names are wanted, by name; none when there is no such folder."""
    try:
        found = sorted(one for one in folder.iterdir() if wanted(one.name) and one.is_file())
    except OSError:
        return ()
    return tuple((one.name, one.read_bytes()[:_LARGEST_TEXT].decode(errors="replace")) for one in found)


def python_wheels(lock: Path, minor: str, folder: Path, python: str) -> list[Path]:
    """The wheels of a lock file for one version of Python and this machine's processor, into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / ".complete"
    if not done.exists():
        machine = os.uname().machine
        abi = f"cp{minor.replace('.', '')}"
        pip = [python, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input"]
        pip += ["download", "--quiet", "--no-deps"]
        kind = ["--only-binary=:all:", "--implementation=cp", f"--python-version={minor}"]
        kind += [f"--abi={one}" for one in (abi, "abi3", "none")]
        kind += [f"--platform={one}_{machine}" for one in _PLATFORMS]
        wanted = ["--require-hashes", f"--dest={folder}", f"--requirement={lock}"]
        run_sync([*pip, *kind, *wanted], timeout=_PIP_TIMEOUT)
        done.touch()
    return sorted(folder.glob("*.whl"))


def read_wheel(path: Path, wanted: Callable[[str], bool]) -> PythonWheel:
    """Metadata and licence texts of a wheel."""
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        metadata = email.message_from_bytes(wheel.read(next(one for one in names if _is_metadata(one))))
        chosen = sorted(one for one in names if ".dist-info/" in one and wanted(one.rpartition("/")[2]))
        texts = tuple((one.rpartition("/")[2], wheel.read(one).decode(errors="replace")) for one in chosen)
    return PythonWheel(path, metadata["Name"], metadata["Version"], metadata.get("License-Expression", ""), texts)


def _is_metadata(name: str) -> bool:
    return re.fullmatch(r"[^/]+\.dist-info/METADATA", name) is not None


def debian_copyright(deb: Path) -> str:
    """The copyright file of a Debian package, "" if there is none: some have that of another one beside it."""
    package = deb.name.partition("_")[0]
    if not deb.is_file() or not shutil.which("dpkg-deb"):
        return ""
    for place in (package, _documented_in(deb, package)):
        for holder in (deb, *sorted(deb.parent.glob(f"{place}_*.deb"))):
            found = run_sync(["sh", "-c", _COPYRIGHT, str(holder), place], timeout=60, check=False)
            if found.returncode == 0 and found.stdout:
                return found.stdout[:_LARGEST_TEXT].decode(errors="replace")
    return ""


def _documented_in(deb: Path, package: str) -> str:
    """The package to which a link in place of the folder of documents leads."""
    listed = run_sync(["dpkg-deb", "--contents", str(deb)], timeout=60, check=False).text
    found = re.search(rf"/usr/share/doc/{re.escape(package)} -> ([a-z0-9.+-]+)$", listed, re.MULTILINE)
    return found[1] if found else package


def installed_versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of Debian packages of this machine, of those that are installed."""
    asked = ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\n", *packages]
    rows = (line.split() for line in run_sync(asked, check=False).text.splitlines())
    return {row[0]: row[1] for row in rows if row[2:] == ["installed"]}
