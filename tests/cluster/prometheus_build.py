"""`python -m tests.cluster.prometheus_build`: build Prometheus from its Go module, which takes minutes."""

from pathlib import Path

from controlplane.binaries.work import ensure
from controlplane.cluster.edge.roots import cache_root

if __name__ == "__main__":
    print(ensure(("prometheus",), cache_dir=Path(cache_root()), progress=print).path("prometheus"))
