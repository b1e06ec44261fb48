"""The files of nodelib/upstream/facts, from what upstream/*.go print and which packages read a gate. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from nodelib.json_values import Json

PROGRAMS = ("kubelet", "kube-proxy")
# Where the code of a node's programs is: the rest of what they are linked with is the API server's libraries,
# validation of API objects and the like, whose gates do nothing on a node.
_NODE = (
    "k8s.io/kubernetes/cmd/kubelet",
    "k8s.io/kubernetes/cmd/kube-proxy",
    "k8s.io/kubernetes/pkg/credentialprovider",
    "k8s.io/kubernetes/pkg/kubelet",
    "k8s.io/kubernetes/pkg/probe",
    "k8s.io/kubernetes/pkg/proxy",
    "k8s.io/kubernetes/pkg/volume",
    "k8s.io/client-go",
    "k8s.io/component-base",
    "k8s.io/component-helpers/nodedeclaredfeatures",
    "k8s.io/cri-client",
    "k8s.io/cri-streaming",
    "k8s.io/streaming",
)
# `features.Name`, also under the names by which the package is imported, and what such a package itself reads.
_CONSTANT = re.compile(r'^\s*(\w+)\s+(?:featuregate\.)?Feature\s*=\s*"(\w+)"', re.MULTILINE)
_READ = re.compile(r"\b(?:\w*[fF]eatures?|logsapi)\.([A-Z]\w*)|Enabled\(([A-Z]\w*)\)")


def is_node_package(path: str) -> bool:
    """Whether a package's code is a node's, by its import path."""
    return any(path == one or path.startswith(f"{one}/") for one in _NODE)


def declares_gates(path: str) -> bool:
    """Whether a package declares the constants of gates, by its import path."""
    return path.startswith("k8s.io/") and path.endswith(("/features", "/logs/api/v1"))


def constants(source: str) -> dict[str, str]:
    """The constants of a Go file that name gates: they are not always called as the gate is."""
    return dict(_CONSTANT.findall(source))


def gates_read(source: str) -> frozenset[str]:
    """Names in a Go file that may be constants of gates it reads."""
    return frozenset(one or other for one, other in _READ.findall(source))


def files(version: str, printed: Json, read: Mapping[str, Iterable[str]], names: Mapping[str, str]) -> dict[str, str]:
    """Name and text of each file.

    `printed`: by program; `read`: by package of a node, the constants that gates_read() found in it; `names`: the gate
    that a constant names.
    """
    readers: dict[str, set[str]] = {}
    for package, found in read.items():
        for constant in found:
            readers.setdefault(names.get(constant, constant), set()).add(
                package.removeprefix("k8s.io/").removeprefix("kubernetes/")
            )
    known = {one["name"]: one for name in reversed(PROGRAMS) for one in printed[name]["gates"]}
    of = {name: {one["name"] for one in printed[name]["gates"]} for name in PROGRAMS}
    gates = [
        {
            **known[name],
            "programs": [program for program in PROGRAMS if name in of[program]],
            "read_by": sorted(readers.get(name, ())),
        }
        for name in sorted(known)
    ]
    return {
        "gates": _text({"kubernetes": version, "gates": gates}),
        **{
            name: _text({"kubernetes": version, "fields": printed[name]["fields"], "flags": printed[name]["flags"]})
            for name in PROGRAMS
        },
    }


def pod_file(version: str, printed: Json) -> str:
    """The file of how a Pod is encoded in protobuf, from what upstream/pod.go prints."""
    return _text({"kubernetes": version, **printed})


def _text(content: Json) -> str:
    """JSON with a line for each entry of a list, so that a new release is a readable difference."""
    return "{\n" + ",\n".join(_members(content)) + "\n}\n"


def _members(content: Json) -> Iterator[str]:
    for name, value in content.items():
        if isinstance(value, list):
            lines = ",\n".join(f"    {json.dumps(one, ensure_ascii=False)}" for one in value)
            yield f"  {json.dumps(name)}: [\n{lines}\n  ]"
        else:
            yield f"  {json.dumps(name)}: {json.dumps(value)}"
