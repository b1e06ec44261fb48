"""Which release the programs of a cluster come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controlplane.cluster.model import Options
from controlplane.cluster.plan import components
from controlplane.prebuilt.work import Release, find, refuse_unmatched
from nodelib.errors import NodewrightError
from nodelib.version import KUBERNETES_VERSION


@dataclass(frozen=True, slots=True)
class ReleaseChoice:
    """`folder`: the release that the user named. `version` is ours; `checkout`: a source tree, which can build."""

    folder: Path | None = None
    version: str = ""
    checkout: bool = True


def choose(wanted: ReleaseChoice, binaries_dir: Path | None, say: Callable[[str], None]) -> Release | None:
    """The release that serves this version, None when programs are to be built here. Blocking.

    Raises Invalid for one that does not fit: the one that the user named, or the one installed with this nodewright.
    A source tree passes over one that happens to be installed, and says so.
    """
    try:
        found = find(wanted.folder)
        if found is None or binaries_dir is not None:
            return None
        _check(found, wanted.version)
        say(f"of release {found.manifest.version} in {found.source.origin}")
    except NodewrightError as error:
        if wanted.folder or not wanted.checkout:
            raise
        say(f"not of the installed release: {error.obj}: {error.message}")
        return None
    return found


def _check(found: Release, version: str) -> None:
    from controlplane.binaries.model import TABLE
    from controlplane.binaries.work import goarch, key_of

    binaries = {TABLE[name].name: TABLE[name] for name in components.needed(Options())}
    keys = {name: key_of(one) for name, one in binaries.items()}
    refuse_unmatched(found, keys, version, KUBERNETES_VERSION, goarch())
