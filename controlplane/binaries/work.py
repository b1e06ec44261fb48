"""Builds the binaries that are asked for and not cached yet, and reports progress."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane.binaries.edge.go_folders import go_folders
from controlplane.binaries.edge.go_run import list_packages, run_go, source_bytes
from controlplane.binaries.edge.toolchain import build_environment, find_go
from controlplane.binaries.model import Binary, cache_key, of_release
from controlplane.binaries.plan.go_runs import (
    GoRun,
    compile_arguments,
    file_name,
    go_arguments,
    go_runs,
    list_arguments,
    required_modules,
)
from controlplane.binaries.plan.remaining import Load, about, remaining
from controlplane.machine.edge.compiler import need_compiler
from controlplane.machine.edge.locks import cache_lock
from controlplane.prebuilt.edge import forget, is_whole
from controlplane.prebuilt.work import Release
from nodelib.command import CommandError
from nodelib.errors import NotFound, Permanent
from nodelib.threads import alone

Progress = Callable[[str], None]

MODULES = Path(__file__).resolve().parent.parent / "go"
_SAY_EVERY = 15.0  # seconds between progress lines of a long build
_ERROR_LINES = 15
_GOARCH = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "riscv64"}


@dataclass(frozen=True, slots=True)
class BinDir:
    """The path of each binary. Aliases (etcd, kube-apiserver, …) are links beside the multi-call binary."""

    paths: Mapping[str, Path]

    def path(self, name: str) -> Path:
        """Raises NotFound for a name that ensure() was not asked for."""
        try:
            return self.paths[name]
        except KeyError:
            raise NotFound("was not built", obj=name, action="Ask for it in ensure(names)") from None


def ensure(
    names: Iterable[str],
    *,
    cache_dir: Path,
    progress: Progress = lambda line: None,
    binaries_dir: Path | None = None,
    release: str = "",
    prebuilt: Release | None = None,
) -> BinDir:
    """Each named binary: from `binaries_dir` (official releases or ours) if it is there, else from the cache.

    The cache gets it from `prebuilt`, a release of ours, if that has just this one; otherwise Go builds it.
    `release`: the control plane's minor version, as in of_release().

    Blocking: minutes when cold, a few milliseconds when everything is cached. Two runs at once build only once.
    Raises NotFound for an unknown name or directory, Permanent with the end of Go's output when a build fails.
    """
    paths, missing = _located(names, cache_dir, binaries_dir, release)
    if prebuilt:
        missing = _unpack_all(missing, prebuilt, cache_dir, progress)
    if missing:
        _build_missing(missing, cache_dir, progress)
    return BinDir(paths)


async def ensure_in_thread(
    names: Sequence[str],
    *,
    cache_dir: Path,
    progress: Progress,
    binaries_dir: Path | None = None,
    release: str = "",
    prebuilt: Release | None = None,
) -> BinDir:
    """As ensure(). Whoever is cancelled while another run builds waits no longer."""
    await alone(_wait_for_others, names, cache_dir, progress, binaries_dir, release)
    return await asyncio.to_thread(
        ensure,
        names,
        cache_dir=cache_dir,
        progress=progress,
        binaries_dir=binaries_dir,
        release=release,
        prebuilt=prebuilt,
    )


def all_there(names: Iterable[str], *, cache_dir: Path, binaries_dir: Path | None = None, release: str = "") -> bool:
    """Whether ensure() has nothing to build. Raises as it does."""
    return not _located(names, cache_dir, binaries_dir, release)[1]


def _located(
    names: Iterable[str], cache_dir: Path, binaries_dir: Path | None, release: str
) -> tuple[dict[str, Path], list[Binary]]:
    """Where each binary is or will be, and those that must be built."""
    if binaries_dir is not None and not binaries_dir.is_dir():
        raise NotFound(
            "no such directory", obj=str(binaries_dir), step="--binaries", action="Name a directory of programs."
        )
    table = of_release(release)
    paths: dict[str, Path] = {}
    missing: list[Binary] = []
    for name in dict.fromkeys(names):
        if name not in table:
            raise NotFound("no such binary", obj=name, action=f"Known: {', '.join(sorted(table))}")
        given = binaries_dir / name if binaries_dir else None
        if given and os.access(given, os.X_OK):
            paths[name] = given
            continue
        folder = _folder(table[name], cache_dir)
        paths[name] = folder / name
        if not (paths[name].exists() and is_whole(folder / table[name].name)):
            missing.append(table[name])
    return paths, missing


def key_of(binary: Binary) -> str:
    """The name of the folder below `bin` in the cache, which says from what the binary is built."""
    return cache_key(binary, module_files(binary.module), goarch())


def module_files(module: str) -> list[tuple[str, bytes]]:
    """Name and content of every file that determines what the Go module builds."""
    folder = MODULES / module
    wanted = [*folder.rglob("*.go"), *folder.rglob("go.mod"), folder / "go.sum"]
    return [(str(path.relative_to(folder)), path.read_bytes()) for path in wanted]


def goarch() -> str:
    """Go's (and OCI's) name of this machine's architecture."""
    return _GOARCH.get(platform.machine(), platform.machine())


def _folder(binary: Binary, cache_dir: Path) -> Path:
    return cache_dir / "bin" / key_of(binary)


def _wait_for_others(
    names: Iterable[str], cache_dir: Path, progress: Progress, binaries_dir: Path | None, release: str
) -> None:
    for run in go_runs(_located(names, cache_dir, binaries_dir, release)[1]):
        with _lock(run, _folder(run.binaries[0], cache_dir), progress):
            pass


def _lock(run: GoRun, folder: Path, progress: Progress) -> AbstractContextManager[None]:
    return cache_lock(folder / ".lock", progress, f"another run is building {run.module} binaries")


def _build_missing(missing: list[Binary], cache_dir: Path, progress: Progress) -> None:
    go = find_go(cache_dir, progress, ", ".join(one.name for one in missing))
    with go_folders(cache_dir, progress) as folders:
        for run in go_runs(missing):
            if run.c:
                need_compiler(progress)
            environment = build_environment(go, folders, c=run.c)
            folder = _folder(run.binaries[0], cache_dir)
            folder.mkdir(parents=True, exist_ok=True)
            with _lock(run, folder, progress):
                # Whoever held the lock until now may have built them.
                broken = [one for one in run.binaries if not is_whole(folder / one.name)]
                for one in broken:
                    forget(folder / one.name)
                for rest in go_runs(broken):
                    _build(_Building(go, rest, folder, environment, progress))
                for binary in run.binaries:
                    _link_aliases(binary, folder)


def _unpack_all(missing: Iterable[Binary], prebuilt: Release, cache_dir: Path, progress: Progress) -> list[Binary]:
    """Unpack those that the release has, several at a time, as xz uses one core for each. Returns the others."""
    unique = {one.name: one for one in missing}
    wanted = [one for name, one in unique.items() if prebuilt.has(key_of(one), name)]

    def unpack(binary: Binary) -> None:
        folder = _folder(binary, cache_dir)
        with cache_lock(folder / f".{binary.name}.lock", progress, f"another run is unpacking {binary.name}"):
            if not is_whole(folder / binary.name):
                prebuilt.unpack(folder.name, binary.name, folder / binary.name)
            _link_aliases(binary, folder)

    if wanted:
        progress(f"unpacking {len(wanted)} programs of release {prebuilt.manifest.version}")
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="unpack") as pool:
            list(pool.map(unpack, wanted))
    return [one for one in unique.values() if one not in wanted]


def _link_aliases(binary: Binary, folder: Path) -> None:
    for alias in binary.aliases:
        if not (folder / alias).is_symlink():
            (folder / alias).symlink_to(binary.name)


@dataclass(frozen=True, slots=True)
class _Building:
    """One run of Go, and where what it makes goes."""

    go: Path
    run: GoRun
    folder: Path
    environment: Mapping[str, str]
    progress: Progress

    @property
    def module(self) -> Path:
        return MODULES / self.run.module

    def go_on(self, arguments: list[str], output: Path, watch: _Watch) -> None:
        argv = [str(self.go), *arguments]
        run_go(argv, cwd=self.module, env=self.environment, output=output, look=watch.look)


def _build(building: _Building) -> None:
    run, progress = building.run, building.progress
    started = time.monotonic()
    progress(f"building {run.label} from source: fetching and reading the sources")
    with _work(building.folder) as work:
        try:
            argv = [str(building.go), *list_arguments(run)]
            packages = list_packages(argv, cwd=building.module, env=building.environment)
            stale = [package for package in packages if package.get("Stale")]
            watch = _Watch(_load(stale, len(run.binaries)), work / "bin", progress)
            required = required_modules((building.module / "go.mod").read_text())
            for arguments in (compile_arguments(run, stale, required), go_arguments(run, str(work / "bin"))):
                if arguments:
                    building.go_on(arguments, work / "output", watch)
        except CommandError as error:
            raise _failure(building, error) from error
        for binary in run.binaries:
            (work / "bin" / file_name(binary)).rename(building.folder / binary.name)
    progress(f"built {run.label} in {_elapsed(time.monotonic() - started)}")


def _load(stale: list[dict[str, object]], links: int) -> Load:
    return Load({str(package.get("ImportPath")): source_bytes(package) for package in stale}, links)


class _Watch:
    """Says how far a run of Go is."""

    def __init__(self, load: Load, made: Path, progress: Progress) -> None:
        self._load = load
        self._made = made
        self._progress = progress
        self._began = time.monotonic()
        self._said = 0.0

    def look(self, lines: list[str]) -> None:
        now = time.monotonic()
        if now - self._said < _SAY_EVERY:
            return
        self._said = now
        linked = len(list(self._made.iterdir())) if self._made.is_dir() else 0
        left = remaining(self._load, lines, linked, now - self._began, os.cpu_count() or 1)
        begun = sum(name in self._load.packages for name in lines)
        self._progress(f"compiling, {begun} of {len(self._load.packages)} packages, {about(left)} left")


def _failure(building: _Building, error: CommandError) -> Permanent:
    said = error.stderr.decode(errors="replace").strip().splitlines()
    # Names of packages that were compiled, without what went wrong.
    last = "\n".join(line for line in said[-_ERROR_LINES:] if " " in line or len(said) == 1)
    return Permanent(
        last or error.message,
        obj=building.run.label,
        step=f"go {'test -c' if error.argv[1:2] == ('test',) else 'build'} in {building.module}",
        action="Fix what Go reports (a full disk and an unreachable module proxy are the usual causes),"
        " or pass --binaries DIR with ready binaries",
    )


@contextmanager
def _work(folder: Path) -> Iterator[Path]:
    for left in folder.glob(".work-*"):  # by a run that was killed: the lock of the folder is ours
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".work-", dir=folder) as work:
        (Path(work) / "bin").mkdir()
        yield Path(work)


def _elapsed(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
