"""The kinds of snapshot.storage.k8s.io/v1, which no API server has by itself. Pure.

Upstream's are in kubernetes-csi/external-snapshotter (client/config/crd) and describe every field. Here the API server
checks what users write; what the controllers write among themselves is left open.
"""

from __future__ import annotations

from typing import Any

from controlplane.cluster.plan.manifests import Object, typed

GROUP = "snapshot.storage.k8s.io"
_APPROVED = "https://github.com/kubernetes-csi/external-snapshotter/pull/814"


def kinds() -> list[Object]:
    """The kinds of snapshots, with what API server and kubectl need; the controllers check the fields themselves."""
    source = _object(
        {
            "persistentVolumeClaimName": _text(),
            "volumeSnapshotContentName": _text(),
        },
        **{
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.persistentVolumeClaimName) != has(self.volumeSnapshotContentName)",
                    "message": "name either the claim to copy or the content that exists",
                },
                {"rule": "self == oldSelf", "message": "the source cannot be changed"},
            ]
        },
    )
    snapshot = {
        "spec": _object({"source": source, "volumeSnapshotClassName": _text()}, required=["source"]),
        "status": _open(),
    }
    content = {"spec": _open(), "status": _open()}
    kind = {"driver": _text(), "deletionPolicy": _choice("Delete", "Retain"), "parameters": _map()}
    return [
        _kind("VolumeSnapshot", "vs", snapshot, ["spec"], _SNAPSHOT_COLUMNS, namespaced=True),
        _kind("VolumeSnapshotContent", "vsc", content, ["spec"], _CONTENT_COLUMNS),
        _kind("VolumeSnapshotClass", "vsclass", kind, ["driver", "deletionPolicy"], _CLASS_COLUMNS),
    ]


_AGE = ("Age", "date", ".metadata.creationTimestamp")
_SNAPSHOT_COLUMNS = (
    ("ReadyToUse", "boolean", ".status.readyToUse"),
    ("SourcePVC", "string", ".spec.source.persistentVolumeClaimName"),
    ("RestoreSize", "string", ".status.restoreSize"),
    ("SnapshotClass", "string", ".spec.volumeSnapshotClassName"),
    ("SnapshotContent", "string", ".status.boundVolumeSnapshotContentName"),
    _AGE,
)
_CONTENT_COLUMNS = (
    ("ReadyToUse", "boolean", ".status.readyToUse"),
    ("DeletionPolicy", "string", ".spec.deletionPolicy"),
    ("Driver", "string", ".spec.driver"),
    ("VolumeSnapshot", "string", ".spec.volumeSnapshotRef.name"),
    _AGE,
)
_CLASS_COLUMNS = (("Driver", "string", ".driver"), ("DeletionPolicy", "string", ".deletionPolicy"), _AGE)


def _kind(
    kind: str,
    short: str,
    properties: Object,
    required: list[str],
    columns: tuple[tuple[str, str, str], ...],
    *,
    namespaced: bool = False,
) -> Object:
    plural = f"{kind.lower()}es" if kind.endswith("s") else f"{kind.lower()}s"
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower(), "shortNames": [short]}
    version: Object = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object(properties, required=required)},
        "additionalPrinterColumns": [{"name": name, "type": of, "jsonPath": path} for name, of, path in columns],
    }
    if "status" in properties:
        version["subresources"] = {"status": {}}
    made = typed(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        f"{plural}.{GROUP}",
        spec={
            "group": GROUP,
            "names": names,
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [version],
        },
    )
    # Groups of k8s.io are protected: the API server asks where such a kind was approved.
    made["metadata"]["annotations"] = {"api-approved.kubernetes.io": _APPROVED}
    return made


def _object(properties: Object, **more: Any) -> Object:
    return {"type": "object", "properties": properties, **more}


def _open() -> Object:
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _text() -> Object:
    return {"type": "string", "minLength": 1}


def _map() -> Object:
    return {"type": "object", "additionalProperties": {"type": "string"}}


def _choice(*values: str) -> Object:
    return {"type": "string", "enum": list(values)}
