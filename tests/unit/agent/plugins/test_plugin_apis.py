"""The plugin APIs as described here against the .proto files that they follow, where the Go module cache has them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from agent.images.edge.image_content import CONTENT
from agent.plugins.edge import apis
from nodelib.plugin_apis.csi import CSI
from nodelib.plugin_apis.registration import REGISTRATION
from nodelib.plugin_apis.wire import Api

_CACHE = Path(os.environ.get("GOMODCACHE") or Path.home() / "go/pkg/mod")
_KUBELET = "k8s.io/kubelet@v0.37.*/pkg/apis"
_PROTOS = {
    "pluginregistration": (REGISTRATION, f"{_KUBELET}/pluginregistration/v1/api.proto"),
    "deviceplugin": (apis.DEVICE_PLUGIN, f"{_KUBELET}/deviceplugin/v1beta1/api.proto"),
    "podresources": (apis.POD_RESOURCES, f"{_KUBELET}/podresources/v1/api.proto"),
    "podresources alpha": (apis.POD_RESOURCES_ALPHA, f"{_KUBELET}/podresources/v1alpha1/api.proto"),
    "pods": (apis.PODS, f"{_KUBELET}/pods/v1alpha1/api.proto"),
    "dra": (apis.DRA, f"{_KUBELET}/dra/v1/api.proto"),
    "dra beta": (apis.DRA_BETA, f"{_KUBELET}/dra/v1beta1/api.proto"),
    "dra health": (apis.DRA_HEALTH, f"{_KUBELET}/dra-health/v1/api.proto"),
    "dra health alpha": (apis.DRA_HEALTH_ALPHA, f"{_KUBELET}/dra-health/v1alpha1/api.proto"),
    "content": (CONTENT, "github.com/containerd/containerd/api@v1.*/services/content/v1/content.proto"),
    "csi": (CSI, "github.com/container-storage-interface/spec@v*/csi.proto"),
}
_GOOGLE = ("Timestamp", "BoolValue", "Int64Value")  # google.protobuf's
_ENTRIES = {"VolumeEntry": "Entry", "SnapshotEntry": "Entry"}  # inside of different messages there
_FIELD = re.compile(r"(?:(repeated|optional)\s+)?(map<\s*string\s*,\s*\w+\s*>|[\w.]+)\s+(\w+)\s*=\s*(\d+)")
Fields = dict[str, tuple[int, str, bool]]


@pytest.mark.parametrize("name", _PROTOS)
def test_every_field_is_where_the_original_has_it(name: str) -> None:
    api, pattern = _PROTOS[name]
    found = sorted(_CACHE.glob(pattern))
    if not found:
        pytest.skip(f"{pattern} is not in the Go module cache")
    text = found[-1].read_text()
    package = re.search(r"^package ([\w.]+);", text, re.M)
    assert package is not None and {call.path.split("/")[1].rpartition(".")[0] for call in api.calls.values()} == {
        package[1]
    }
    originals = _messages(re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S))
    enums = set(re.findall(r"enum (\w+)", text))
    for message, ours in _described(api).items():
        if message in _GOOGLE or message in _ENTRIES:
            continue
        theirs = originals[message]
        for field, (number, kind, repeated) in ours.items():
            was = theirs[field]
            expected = "int32" if was[1] in enums else was[1]
            kind = _ENTRIES.get(kind, kind)
            assert (number, kind, repeated) == (was[0], expected, was[2]), f"{message}.{field}"
        if name != "csi":  # of CSI only what is used is described
            assert set(ours) == set(theirs), message
    for call in api.calls:
        assert re.search(rf"rpc {call.split('.')[1]}\b", text), call


def _described(api: Api) -> dict[str, Fields]:
    made: dict[str, Fields] = {}
    for name, kind in api.messages.items():
        made[name] = {}
        for field in kind.DESCRIPTOR.fields:
            entry = field.message_type is not None and field.message_type.GetOptions().map_entry
            named = "map" if entry else field.message_type.name if field.message_type is not None else _scalar(field)
            made[name][field.name] = (field.number, named, field.is_repeated)
    return made


def _scalar(field: object) -> str:
    names = {9: "string", 8: "bool", 12: "bytes", 5: "int32", 3: "int64", 4: "uint64"}
    return names[field.type]  # type: ignore[attr-defined]


def _messages(text: str) -> dict[str, Fields]:
    """Every message by its own name, those inside others too."""
    found: dict[str, Fields] = {}
    for start in re.finditer(r"\bmessage (\w+)\s*\{", text):
        body, depth = [], 1
        for char in text[start.end() :]:
            depth += {"{": 1, "}": -1}.get(char, 0)
            if depth == 0:
                break
            body.append(char)
        own = re.sub(r"\b(message|enum) \w+\s*\{(?:[^{}]|\{[^{}]*\})*\}", "", "".join(body))
        fields = {}
        for label, kind, name, number in _FIELD.findall(own):
            plain = "map" if kind.startswith("map") else kind.rpartition(".")[2]
            fields[name] = (int(number), plain, label == "repeated" or plain == "map")
        if start[1] not in found or len(fields) > len(found[start[1]]):
            found[start[1]] = fields
    return found
