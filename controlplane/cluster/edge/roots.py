"""Where state and cache are on this machine; the only place that reads this from the environment."""

from __future__ import annotations

import os

from controlplane.cluster.model import STATE_ROOT


def state_root() -> str:
    """The directory of all clusters' state on this machine."""
    return os.environ.get("NODEWRIGHT_STATE", STATE_ROOT)


def cache_root() -> str:
    """The directory of binaries, images and environments that clusters share and `down` keeps."""
    return os.environ.get("NODEWRIGHT_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "nodewright")
