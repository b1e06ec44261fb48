"""Archives of images under names of a test's own. Nodes cannot export theirs: their layers are kept unpacked only."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

from controlplane.binaries.work import ensure
from controlplane.images.work import ensure_images
from tests.builders.pods import BUSYBOX

_NAME = "io.containerd.image.name"


def busybox_named(name: str, target: Path) -> None:
    """The image of busybox, called `name`, as an OCI archive at `target`. Blocking."""
    cache = Path(os.environ.get("NODEWRIGHT_CACHE", Path.home() / ".cache/nodewright"))
    source = ensure_images([BUSYBOX], cache_dir=cache, binaries=ensure([], cache_dir=cache))[BUSYBOX]
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old:
            file = old.extractfile(member)
            content = file.read() if file else b""
            if member.name == "index.json":
                content = _renamed(content, name)
                member.size = len(content)
            new.addfile(member, io.BytesIO(content))


def _renamed(index: bytes, name: str) -> bytes:
    found = json.loads(index)
    first = found["manifests"][0]
    return json.dumps({**found, "manifests": [{**first, "annotations": {_NAME: name}}]}).encode()
