"""What a container is made from, and its mounts as they were decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.common.model.pods import ImageFacts, Json
from agent.devices.model.devices import NO_DEVICES, DeviceGrant
from agent.volumes.model.volumes import MountedVolume, SubPath


@dataclass(frozen=True, slots=True)
class PreparedPod:
    """All that containers of one pod are made from, gathered before any of them starts."""

    volumes: Mapping[str, MountedVolume] = field(default_factory=dict)
    hosts_file: str = ""
    cgroup_parent: str = ""
    services: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerInputs:
    """What is settled when a container is made. `ips`: its sandbox's; `image_ref`: what the runtime knows the image by.

    `target_id`: the container whose processes an ephemeral container is to see (its targetContainerName).
    `given`: what device plugins and DRA drivers grant it.
    """

    attempt: int
    ips: tuple[str, ...]
    image: ImageFacts
    image_ref: str
    target_id: str = ""
    given: DeviceGrant = NO_DEVICES


@dataclass(frozen=True, slots=True)
class MountPlan:
    """One volumeMount of a container, decided; `host_path` is "" while a `sub_path` must be resolved."""

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
