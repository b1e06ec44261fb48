"""Checks what a file adds to the KubeletConfiguration of nodes, by the agent's own schema. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.config.plan.fields import Path

# What nodewright decides, since the rest of the node is made for it.
_OURS = frozenset(
    {
        "apiVersion", "kind", "address", "port", "enableServer", "tlsCertFile", "tlsPrivateKeyFile", "clusterDNS",
        "clusterDomain", "containerRuntimeEndpoint", "cgroupDriver", "cgroupRoot", "staticPodPath", "resolvConf",
        "authentication.x509.clientCAFile",
    }
)  # fmt: skip


def problems(patch: Mapping[str, Any]) -> list[tuple[Path, str]]:
    """(path, text) of each field that a kubelet does not know, or that has the wrong type."""
    found: list[tuple[Path, str]] = []
    for name, value in patch.items():
        if reason := _problem({name: value}):
            path, text = reason
            found.append((path, text))
    return found


def _problem(patch: dict[str, Any]) -> tuple[Path, str] | None:
    # A quarter of a second: most commands, and most files, never need the agent's schema.
    from agent.config.decode import Document, flatten
    from nodelib.errors import Invalid

    name = next(iter(patch))
    if not isinstance(name, str):
        return (str(name),), "must be text: put it in quotes"
    try:
        fields = {name, *flatten(Document("", patch, {}))}
    except Invalid as error:
        path, _, text = error.message.partition(": ")
        return tuple(path.split(".")), text
    ours = sorted(fields & _OURS)
    return (tuple(ours[0].split(".")), "is decided by nodewright") if ours else None
