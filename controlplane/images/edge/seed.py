"""A containerd root that already holds the images, made once and then cloned for each node.

Importing the demo images takes seconds (hashing, journalling and unpacking 300 MB), a clone takes milliseconds, because
nodes share the files of layers (clone.py). On another file system everything is copied.

Layers are kept unpacked only: their packed form would take as much of the disk again, and a runtime reads it only to
export an image (the archives are in the cache for that).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from controlplane.images.edge.clone import clone
from controlplane.images.edge.unused_seeds import WORK, remove_unused
from controlplane.images.edge.unxz import SUFFIX as UNXZ_SUFFIX
from controlplane.images.edge.unxz import unxz
from controlplane.machine.edge import disk
from controlplane.machine.edge.locks import cache_lock
from nodelib.command import CommandError, run_sync
from nodelib.errors import Conflict, Permanent
from nodelib.text import counted

Progress = Callable[[str], None]

_FORMAT = "2"
_TRIES = 600  # with 0.05 s between them
# What belongs to one node (uuid) or is only scratch: a clone starts without it.
_OWN = ("io.containerd.grpc.v1.introspection", "io.containerd.content.v1.content/ingest", "tmpmounts")

_CONFIG = """version = 3
root = "{root}"
state = "{state}"
[grpc]
  address = "{state}/containerd.sock"
"""

# Import, then wait until the CRI plugin has labelled every image, so that a node's first kubelet call finds them.
# Layers that were unpacked go when containerd collects its garbage, which only the end of a lease can wait for.
# A clean exit flushes the databases.
_SCRIPT = """set -eu
containerd=$1; ctr="$2 -a $3/containerd.sock -n k8s.io"; log=$3/containerd.log; wanted=$4; shift 4
"$containerd" --config "$CONFIG" --log-level warn >"$log" 2>&1 &
pid=$!
said() { grep -v DEPRECATION "$log" | tail -n 5 >&2 || true; }
trap 'kill $pid 2>/dev/null && wait $pid || true' EXIT
tries=0
until $ctr version >/dev/null 2>&1; do
  tries=$((tries + 1)); kill -0 $pid 2>/dev/null && [ $tries -lt "$TRIES" ] || { said; exit 1; }
  sleep 0.05
done
import="$ctr images import --local --discard-unpacked-layers --snapshotter overlayfs"
for archive in "$@"; do
  case $archive in
    *.xz) $UNXZ "$archive" | $import - >/dev/null ;;
    *) $import "$archive" >/dev/null ;;
  esac
done
tries=0
managed() { $ctr images ls -q 'labels."io.cri-containerd.image"==managed' 2>/dev/null | grep -cv '^sha256:'; }
until [ "$(managed)" -ge "$wanted" ]; do
  tries=$((tries + 1))
  [ $tries -lt "$TRIES" ] || { said; echo "the CRI plugin did not take the images over" >&2; exit 1; }
  sleep 0.05
done
$ctr leases create --id collect >/dev/null
$ctr leases delete --sync collect >/dev/null
"""


def seed_containerd_root(
    dest: Path,
    images: Mapping[str, Path],
    *,
    containerd: Path,
    cache_dir: Path,
    progress: Progress = lambda line: None,
    ctr: Path | None = None,
    layers: Path | None = None,
) -> None:
    """Fill `dest` (a containerd root that is empty or does not exist) with `images` (name -> archive).

    containerd does not mind the path of `dest`; its snapshotter must be overlayfs. Blocking; `ctr` is the one beside
    `containerd` unless given. `layers`: a folder that does not exist, for the files of layers, which must then be bound
    into `dest` (clone.py); None: `dest` has copies. Raises Conflict when `dest` is in use, Permanent when the seed
    cannot be made.
    """
    if dest.exists() and any(dest.iterdir()):
        raise Conflict(
            "is not empty", obj=str(dest), step="seed containerd", action="Import the images with ctr instead"
        )
    with seed_of(images, containerd=containerd, cache_dir=cache_dir, progress=progress, ctr=ctr) as seed:
        clone(seed, dest, layers)


@contextmanager
def seed_of(
    images: Mapping[str, Path],
    *,
    containerd: Path,
    cache_dir: Path,
    progress: Progress = lambda line: None,
    ctr: Path | None = None,
) -> Iterator[Path]:
    """The seed for these images and this containerd; made, in seconds, if it is not in the cache.

    It is not removed while the context lasts. Making a seed removes those that nobody has used for days.
    """
    seeds = cache_dir / "seeds"
    archives = sorted(set(images.values()))
    real = containerd.resolve()
    parts = [_FORMAT, real.parent.name, str(real.stat().st_size), *map(_key, archives)]
    seed = seeds / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    lock, busy = seeds / f"{seed.name}.lock", "another run is preparing the images for containerd"
    while True:
        with cache_lock(lock, progress, busy, shared=True):
            if seed.exists():
                os.utime(seed)  # remove_unused() goes by the time of the last use
                yield seed
                return
        with cache_lock(lock, progress, busy):
            if not seed.exists():
                progress(f"preparing {counted(len(archives), 'image')} for containerd (once)")
                with _work(seeds) as work:
                    _fill(work, archives, len(images), containerd, ctr or real.with_name("ctr"))
                    # After a power cut its name would be there, and its files empty, for every cluster to come.
                    disk.flush(str(work))
                    work.rename(seed)
        for name in remove_unused(seeds, time.time()):
            progress(f"removed {name} from {seeds}: not used for days")


def _key(archive: Path) -> str:
    """What the archive is: its folder says it for one that was built here, its name for one of a release."""
    return archive.name if archive.name.endswith(UNXZ_SUFFIX) else archive.parent.name


def _fill(root: Path, archives: list[Path], wanted: int, containerd: Path, ctr: Path) -> None:
    # Not in the cache folder: the path of a unix socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="nodewright-seed-") as state:
        config = Path(state, "config.toml")
        config.write_text(_CONFIG.format(root=root, state=state))
        argv = ["sh", "-c", _SCRIPT, "seed", str(containerd), str(ctr), state, str(wanted), *map(str, archives)]
        environment = {**os.environ, "CONFIG": str(config), "UNXZ": shlex.join(unxz()), "TRIES": str(_TRIES)}
        try:
            run_sync(argv, timeout=600, env=environment)
        except CommandError as error:
            raise Permanent(
                _without_notices(error.stderr.decode(errors="replace")) or error.message,
                obj="containerd seed",
                step="import images",
                action="Try again; if it stays so, `./nodewright doctor` says what this machine lacks.",
            ) from error
    for path in _OWN:
        shutil.rmtree(root / path, ignore_errors=True)
    (root / "io.containerd.content.v1.content/ingest").mkdir(parents=True)


def _without_notices(said: str) -> str:
    """ctr tells each time that cgroup v1 has no future, which hides what went wrong."""
    return "\n".join(line for line in said.splitlines() if "DEPRECATION" not in line).strip()


@contextmanager
def _work(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=WORK, dir=folder))
    try:
        yield work
    finally:
        if work.exists():
            shutil.rmtree(work)
