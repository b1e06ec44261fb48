"""`python -m tests.netns.csi_sanity_build`: build upstream's csi-sanity from its Go module."""

from pathlib import Path

from controlplane.binaries.work import ensure
from controlplane.cluster.edge.roots import cache_root

if __name__ == "__main__":
    print(ensure(("csi-sanity",), cache_dir=Path(cache_root()), progress=print).path("csi-sanity"))
