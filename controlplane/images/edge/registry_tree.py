"""An image laid out in the folders that agnhost's fake-registry-server serves.

Its rules (test/images/agnhost/fakeregistryserver of Kubernetes): NAME/manifests/TAG holds a digest, everything else
is at NAME/{manifests,blobs}/ALGORITHM/first two digits/HASH/data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from controlplane.images.edge.layout import Archive
from controlplane.images.model.oci import INDEX, Entry, describe, file

_ROOT = "var/registry"


def registry_entries(archive: Archive, name: str, tag: str) -> Iterator[Entry]:
    """The entries of a layer that serves the archive's only image as `name`:`tag`."""
    descriptor = {key: value for key, value in next(iter(archive.names.values())).items() if key != "annotations"}
    manifest = archive.document(descriptor["digest"])
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor]}, sort_keys=True).encode()
    index_digest = describe(INDEX, index).digest
    base = f"{_ROOT}/{name}"
    yield file(f"{base}/manifests/{tag}", index_digest + "\n")
    yield file(_data(f"{base}/manifests", index_digest), index)
    yield file(_data(f"{base}/manifests", descriptor["digest"]), archive.blobs[descriptor["digest"]].read())
    for blob in (manifest["config"], *manifest["layers"]):
        yield file(_data(f"{base}/blobs", blob["digest"]), archive.blobs[blob["digest"]].read())


def _data(base: str, digest: str) -> str:
    algorithm, _, value = digest.partition(":")
    return f"{base}/{algorithm}/{value[:2]}/{value}/data"
