"""What a container is made from, and its mounts once they are decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.common.model.pods import ImageFacts
from agent.devices.model.devices import NO_DEVICES, DeviceGrant
from agent.volumes.model.volumes import MountedVolume, SubPath
from nodelib.json_values import Json


@dataclass(frozen=True, slots=True)
class PreparedPod:
    """What all containers of one pod share, prepared before any of them starts.

    `volumes` by name; `services`: all Services of the cluster, for the environment; `handler`: the runtime's, by the
    pod's RuntimeClass.
    """

    volumes: Mapping[str, MountedVolume] = field(default_factory=dict)
    cgroup_parent: str = ""
    services: tuple[Json, ...] = ()
    handler: str = ""


@dataclass(frozen=True, slots=True)
class ContainerInputs:
    """What is known only when a container is created.

    `ips`: its sandbox's addresses; `image_ref`: the runtime's name of the image; `target_id`: the container whose
    processes an ephemeral container is to see (its targetContainerName); `devices`: what device plugins and DRA
    drivers grant it.
    """

    attempt: int
    ips: tuple[str, ...]
    image: ImageFacts
    image_ref: str
    target_id: str = ""
    devices: DeviceGrant = NO_DEVICES


@dataclass(frozen=True, slots=True)
class MountPlan:
    """One volumeMount of a container, decided; `host_path` is "" while a `sub_path` must be resolved.

    `relabels`: the runtime gives the files the container's SELinux context.
    """

    name: str
    container_path: str
    host_path: str = ""
    sub_path: SubPath | None = None
    read_only: bool = False
    recursive_read_only: bool = False
    propagation: str = "PROPAGATION_PRIVATE"
    image: str = ""
    image_ref: str = ""
    image_sub_path: str = ""
    relabels: bool = False
