"""Put together everything behind the PodMaterials port; called by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.edge.pod_disk import PodDisk
from agent.edge.pod_objects import PodObjects
from agent.materials_model import MaterialSettings, NodeFacts
from agent.plan.cgroups import Machine, Policy
from agent.work.materials import MaterialEdges, PodMaterialsWork, Warn
from nodelib.clock import Clock
from nodelib.kube.client import KubeClient


@dataclass(frozen=True, slots=True)
class BuiltMaterials:
    """`objects.tasks()` are to be supervised, `objects.close()` called at the end."""

    materials: PodMaterialsWork
    objects: PodObjects


def build_materials(
    client: KubeClient,
    settings: MaterialSettings,
    *,
    clock: Clock,
    node: Callable[[], NodeFacts],
    policy: Policy,
    machine: Machine,
    notify: Callable[[str], None],
    warn: Warn,
) -> BuiltMaterials:
    """`notify(uid)`: the pod wants refresh() (or another try of prepare()); `warn`: a Warning event about a pod."""
    objects = PodObjects(client, clock, notify)
    edges = MaterialEdges(objects, PodDisk(settings.root_dir), node, warn, policy, machine)
    return BuiltMaterials(PodMaterialsWork(settings, edges), objects)
