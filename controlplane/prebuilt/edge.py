"""Reads a release: the wheels of a folder, or what pip installed of them; and unpacks its files."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import json
import lzma
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from controlplane.prebuilt.model import DISTRIBUTION, MANIFEST, PACKAGE, Packed, Program
from nodelib.errors import Invalid, NotFound

_CHUNK = 1 << 20
_MEMORY = 512 << 20  # bytes that the decompressor may use; the largest dictionary of ours is 96 MiB
_LARGEST_RECORD = 4 << 20


class Source(Protocol):
    """Where the files of a release are."""

    @property
    def origin(self) -> str: ...

    def manifest(self) -> bytes:
        """release.json, checked against the RECORD of its wheel."""
        ...

    def opened(self, packed: Packed) -> Any:
        """A context with the file, for reading."""
        ...

    def place(self, packed: Packed) -> Path | None:
        """Where the file lies by itself, None in a wheel."""
        ...


@dataclass(frozen=True, slots=True)
class Wheels:
    """The wheels in a folder, by part."""

    folder: Path
    parts: dict[str, Path]

    @property
    def origin(self) -> str:
        return str(self.folder)

    def manifest(self) -> bytes:
        path = self.parts[PACKAGE]
        with _zip(path) as wheel:
            record = next((name for name in wheel.namelist() if name.endswith(".dist-info/RECORD")), "")
            if not record:
                raise _damaged(str(path), "it has no RECORD")
            content = _member(wheel, f"{PACKAGE}/{MANIFEST}", path)
            _check(content, _member(wheel, record, path).decode(errors="replace"), str(path))
            return content

    @contextmanager
    def opened(self, packed: Packed) -> Iterator[IO[bytes]]:
        path = self.parts.get(packed.part)
        if path is None:
            raise NotFound(
                f"the wheel {packed.part} is missing",
                obj=self.origin,
                step=f"unpack {packed.file}",
                action="Copy all files of the release into one folder.",
            )
        with _zip(path) as wheel:
            try:
                member = wheel.open(f"{packed.part}/{packed.file}")
            except KeyError as error:
                raise _damaged(str(path), f"{packed.file} is not in it") from error
            with member:
                yield member

    def place(self, packed: Packed) -> Path | None:
        return None


@dataclass(frozen=True, slots=True)
class Installed:
    """What pip installed: the folder of each part, and the RECORD of the first."""

    folders: dict[str, Path]
    record: str

    @property
    def origin(self) -> str:
        return str(self.folders[PACKAGE])

    def manifest(self) -> bytes:
        path = self.folders[PACKAGE] / MANIFEST
        try:
            content = path.read_bytes()
        except OSError as error:
            raise _damaged(str(path), error.strerror or "cannot be read") from error
        _check(content, self.record, str(path))
        return content

    @contextmanager
    def opened(self, packed: Packed) -> Iterator[IO[bytes]]:
        path = self.place(packed)
        try:
            with path.open("rb") as file:
                yield file
        except FileNotFoundError as error:
            raise _damaged(str(path), "is missing") from error

    def place(self, packed: Packed) -> Path:
        return self.folders.get(packed.part, self.folders[PACKAGE].with_name(packed.part)) / packed.file


def in_folder(folder: Path) -> Wheels:
    """The release whose wheels lie there. Raises NotFound, or Invalid when there are several."""
    parts: dict[str, Path] = {}
    for path in sorted(folder.glob(f"{PACKAGE}*.whl")):
        part = path.name.partition("-")[0]
        if part in parts:
            raise Invalid(
                f"{path.name} and {parts[part].name} are both there",
                obj=str(folder),
                step="read the release",
                action="Keep one version in it.",
            )
        parts[part] = path
    if PACKAGE not in parts:
        raise NotFound(
            f"no {PACKAGE}-*.whl is in it",
            obj=str(folder),
            step="read the release",
            action="Name the folder that `./nodewright release DIR` wrote, or that has the files of a release.",
        )
    return Wheels(folder, parts)


def installed() -> Installed | None:
    """What pip installed beside this nodewright."""
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(found.submodule_search_locations[0])
    parts = {path.name: path for path in folder.parent.glob(f"{PACKAGE}*") if path.is_dir() and "-" not in path.name}
    return Installed(parts, distribution.read_text("RECORD") or "")


def unpack(source: Source, program: Program, target: Path) -> None:
    """Write the program at `target`, 0755: complete and with the right digest, or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.parent.chmod(0o755)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        partial.unlink()
    try:
        with source.opened(program.packed) as packed:
            digest, size = _decompress(packed, partial, program.size, source.origin)
        if (digest, size) != (program.sha256, program.size):
            raise _damaged(f"{program.name} of {source.origin}", "its digest is not that of the release")
        remember(target, partial, program.sha256)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)


def _decompress(packed: IO[bytes], target: Path, limit: int, origin: str) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    unxz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
    opened = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o700)
    with os.fdopen(opened, "wb") as file:
        try:
            while not unxz.eof and size <= limit:
                given = packed.read(_CHUNK) if unxz.needs_input else b""
                if unxz.needs_input and not given:
                    raise EOFError("it ends too early")
                chunk = unxz.decompress(given, 4 * _CHUNK)
                digest.update(chunk)
                size += len(chunk)
                file.write(chunk)
        except (lzma.LZMAError, EOFError, zipfile.BadZipFile) as error:
            raise _damaged(origin, str(error)) from error
        os.fchmod(file.fileno(), 0o755)
    return digest.hexdigest(), size


def copy(source: Source, packed: Packed, target: Path) -> None:
    """Have the compressed file at `target`, checked: a link to where it lies by itself, or a copy of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    try:
        digest = hashlib.sha256()
        lies = source.place(packed)
        with source.opened(packed) as file, open(os.devnull if lies else partial, "wb") as out:
            size = 0
            while (chunk := file.read(_CHUNK)) and size <= packed.size:
                digest.update(chunk)
                size += len(chunk)
                out.write(chunk)
        if (digest.hexdigest(), size) != (packed.sha256, packed.size):
            raise _damaged(f"{packed.file} of {source.origin}", "its digest is not that of the release")
        if lies:
            partial.symlink_to(lies)
        remember(target, partial, packed.sha256)
        partial.rename(target)
    except zipfile.BadZipFile as error:
        raise _damaged(source.origin, str(error)) from error
    finally:
        partial.unlink(missing_ok=True)


# --- what was unpacked: as it was, or to be unpacked again ----------------------------------------------------------


def remember(target: Path, partial: Path, sha256: str) -> None:
    """Note beside `target` what it must be, before `partial` becomes it."""
    status = partial.stat()
    note = {"sha256": sha256, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    mark = _mark(target)
    half = mark.with_name(f"{mark.name}.{os.getpid()}")
    half.write_text(json.dumps(note))
    half.rename(mark)


def is_whole(target: Path) -> bool:
    """Whether the file is there and, if it came from a release, still what it was.

    The content is read again only when size or time are not those that were noted.
    """
    try:
        status = target.stat()
        note = json.loads(_mark(target).read_bytes())
    except FileNotFoundError:
        return target.exists()
    except ValueError:
        return False
    if not isinstance(note, dict) or note.get("size") != status.st_size:
        return False
    if note.get("mtime_ns") == status.st_mtime_ns:
        return True
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == note.get("sha256")


def forget(target: Path) -> None:
    """Remove a file that is not whole, with its note. Processes that run it keep it."""
    target.unlink(missing_ok=True)
    _mark(target).unlink(missing_ok=True)


def _mark(target: Path) -> Path:
    return target.with_name(f".{target.name}.digest")


# --- reading wheels -------------------------------------------------------------------------------------------------


@contextmanager
def _zip(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        wheel = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise _damaged(str(path), str(error)) from error
    with wheel:
        yield wheel


def _member(wheel: zipfile.ZipFile, name: str, path: Path) -> bytes:
    try:
        with wheel.open(name) as file:
            content = file.read(_LARGEST_RECORD + 1)
    except (KeyError, zipfile.BadZipFile) as error:
        raise _damaged(str(path), f"{name} cannot be read") from error
    if len(content) > _LARGEST_RECORD:
        raise _damaged(str(path), f"{name} is too large")
    return content


def _check(content: bytes, record: str, origin: str) -> None:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    if f"{PACKAGE}/{MANIFEST},sha256={digest},{len(content)}" not in record.splitlines():
        raise _damaged(origin, f"{MANIFEST} is not what RECORD says")


def _damaged(obj: str, why: str) -> Invalid:
    return Invalid(
        f"damaged: {why}",
        obj=obj,
        step="unpack the release",
        action=f"Fetch the files of the release again (`pip install --force-reinstall {DISTRIBUTION}` if pip installed "
        "them).",
    )
