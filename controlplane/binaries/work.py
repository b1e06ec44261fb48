"""Builds the binaries that are asked for and not cached yet, and reports progress."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from pathlib import Path

from controlplane.binaries.edge import build_environment, find_go
from controlplane.binaries.model import Binary, cache_key, go_arguments, of_release
from controlplane.machine.edge.locks import cache_lock
from controlplane.prebuilt.edge import forget, is_whole
from controlplane.prebuilt.work import Release
from nodelib.command import CommandError, Completed, run_sync
from nodelib.errors import NotFound, Permanent

Progress = Callable[[str], None]

MODULES = Path(__file__).resolve().parent.parent / "go"
_BUILD_TIMEOUT = 3600.0  # seconds; a cold build of the largest takes minutes on two cores
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
    if binaries_dir is not None and not binaries_dir.is_dir():
        raise NotFound(
            "no such directory", obj=str(binaries_dir), step="--binaries", action="Name a directory of programs."
        )
    table = of_release(release)
    paths: dict[str, Path] = {}
    missing: dict[str, Binary] = {}
    for name in dict.fromkeys(names):
        if name not in table:
            raise NotFound("no such binary", obj=name, action=f"Known: {', '.join(sorted(table))}")
        given = binaries_dir / name if binaries_dir else None
        if given and os.access(given, os.X_OK):
            paths[name] = given
        else:
            missing[name] = table[name]
    if prebuilt:
        _unpack_all({one.name: one for one in missing.values()}, prebuilt, cache_dir, progress)
    paths |= {name: _cached(one, name, cache_dir, progress) for name, one in missing.items()}
    return BinDir(paths)


def key_of(binary: Binary) -> str:
    """The name of the folder below `bin` in the cache, which says from what the binary is built."""
    return cache_key(binary, module_files(binary.module), goarch())


def module_files(module: str) -> list[tuple[str, bytes]]:
    """Name and content of every file that determines what the Go module builds."""
    folder = MODULES / module
    wanted = [*folder.glob("*.go"), folder / "go.mod", folder / "go.sum"]
    return [(path.name, path.read_bytes()) for path in wanted]


def goarch() -> str:
    """Go's (and OCI's) name of this machine's architecture."""
    return _GOARCH.get(platform.machine(), platform.machine())


def _cached(binary: Binary, name: str, cache_dir: Path, progress: Progress) -> Path:
    folder = cache_dir / "bin" / key_of(binary)
    wanted = folder / name
    if wanted.exists() and is_whole(folder / binary.name):
        return wanted
    folder.mkdir(parents=True, exist_ok=True)
    with cache_lock(folder / ".lock", progress, f"another run is building {binary.module} binaries"):
        if not is_whole(folder / binary.name):
            forget(folder / binary.name)
            _build(binary, folder / binary.name, cache_dir, progress)
        _link_aliases(binary, folder)
    return wanted


def _link_aliases(binary: Binary, folder: Path) -> None:
    for alias in binary.aliases:
        if not (folder / alias).is_symlink():
            (folder / alias).symlink_to(binary.name)


def _unpack_all(binaries: Mapping[str, Binary], prebuilt: Release, cache_dir: Path, progress: Progress) -> None:
    """Unpack those that the release has and the cache has not, several at a time: xz uses one core for each."""
    folders = {name: cache_dir / "bin" / key_of(one) for name, one in binaries.items()}
    wanted = [
        name for name, folder in folders.items() if prebuilt.has(folder.name, name) and not is_whole(folder / name)
    ]

    def unpack(name: str) -> None:
        folder = folders[name]
        with cache_lock(folder / f".{name}.lock", progress, f"another run is unpacking {name}"):
            if not is_whole(folder / name):
                prebuilt.unpack(folder.name, name, folder / name)
            _link_aliases(binaries[name], folder)

    if not wanted:
        return
    progress(f"unpacking {len(wanted)} programs of release {prebuilt.manifest.version}")
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="unpack") as pool:
        list(pool.map(unpack, wanted))


def _build(binary: Binary, target: Path, cache_dir: Path, progress: Progress) -> None:
    go = find_go(cache_dir, progress)
    label = ", ".join(binary.aliases) or binary.name
    progress(f"building {label} from source ({binary.cold} when nothing is cached)")
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    started = time.monotonic()
    try:
        _run_saying(
            [str(go), *go_arguments(binary, str(partial))],
            cwd=MODULES / binary.module,
            env=build_environment(go),
            say=lambda seconds: progress(f"building {label}: {_elapsed(seconds)} so far"),
        )
        partial.rename(target)
    except CommandError as error:
        last = "\n".join(error.stderr.decode(errors="replace").strip().splitlines()[-_ERROR_LINES:])
        raise Permanent(
            last or error.message,
            obj=binary.name,
            step=f"go build in {MODULES / binary.module}",
            action="Fix what Go reports (a full disk and an unreachable module proxy are the usual causes),"
            " or pass --binaries DIR with ready binaries",
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    progress(f"built {label} in {_elapsed(time.monotonic() - started)}")


def _run_saying(argv: list[str], *, cwd: Path, env: Mapping[str, str], say: Callable[[float], None]) -> Completed:
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="go-build") as pool:
        running: Future[Completed] = pool.submit(run_sync, argv, timeout=_BUILD_TIMEOUT, env=env, cwd=str(cwd))
        while True:
            try:
                return running.result(timeout=_SAY_EVERY)
            except FutureTimeoutError:
                if running.done():
                    raise
                say(time.monotonic() - started)


def _elapsed(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
