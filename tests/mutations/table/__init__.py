"""Every mutation, by capability. The order of the files is that of the page."""

from __future__ import annotations

from tests.mutations.model import Mutation
from tests.mutations.table import cni, containers, images, node, pods, probes, proxy, resources, server, volumes

TABLE: tuple[Mutation, ...] = (
    *probes.TABLE,
    *pods.TABLE,
    *containers.TABLE,
    *volumes.TABLE,
    *images.TABLE,
    *resources.TABLE,
    *node.TABLE,
    *server.TABLE,
    *proxy.TABLE,
    *cni.TABLE,
)
