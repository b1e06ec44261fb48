"""What a file can say of a cluster beyond the options of the command line, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

API_VERSION = "nodewright.io/v1alpha1"
KIND = "Cluster"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node, as in the API."""

    key: str
    effect: str
    value: str = ""

    def to_api(self) -> dict[str, str]:
        return {"key": self.key, "effect": self.effect, **({"value": self.value} if self.value else {})}


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of this machine that a node sees."""

    host_path: str
    node_path: str
    readonly: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A node of a cluster. `number` gives its address (the first node has 1); 0: not chosen yet.

    `cpus` and `memory` are 0 for what all nodes have; `kubelet` is a merge patch of its KubeletConfiguration.
    """

    name: str
    number: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    cpus: int = 0
    memory: int = 0
    mounts: tuple[Mount, ...] = ()
    kubelet: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Member:
        made = {
            "taints": tuple(Taint(**one) for one in data.get("taints", ())),
            "mounts": tuple(Mount(**one) for one in data.get("mounts", ())),
        }
        return cls(**{**data, **made})


@dataclass(frozen=True, slots=True)
class Port:
    """A TCP port of this machine that leads to a port of one node, or of all nodes in turn (`node` is "" then)."""

    host_port: int
    node_port: int
    listen: str = "127.0.0.1"
    node: str = ""


@dataclass(frozen=True, slots=True)
class Mirror:
    """Where images of a registry are looked for first."""

    url: str
    ca_file: str = ""
    skip_verify: bool = False


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry with its mirrors and its login. The password itself is nowhere here, only where it comes from."""

    host: str
    mirrors: tuple[Mirror, ...] = ()
    username: str = ""
    password_file: str = ""
    password_env: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Registry:
        return cls(**{**data, "mirrors": tuple(Mirror(**one) for one in data.get("mirrors", ()))})


@dataclass(frozen=True, slots=True)
class Custom:
    """What only a file can say of the cluster as a whole. `kubelet` is a merge patch for every node."""

    ports: tuple[Port, ...] = ()
    api_server: Mapping[str, str] = field(default_factory=dict)
    controller_manager: Mapping[str, str] = field(default_factory=dict)
    scheduler: Mapping[str, str] = field(default_factory=dict)
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    registries: tuple[Registry, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Custom:
        made = {
            "ports": tuple(Port(**one) for one in data.get("ports", ())),
            "registries": tuple(Registry.from_json(one) for one in data.get("registries", ())),
        }
        return cls(**{**data, **made})


@dataclass(frozen=True, slots=True)
class Ranges:
    """Address ranges of a cluster, each as CIDRs separated by commas, one for each IP family; "" leaves the choice."""

    nodes: str = ""
    pods: str = ""
    services: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Everything that a file says. `options`: the options of `up` that it sets, by their names in Options."""

    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    custom: Custom = field(default_factory=Custom)
    ranges: Ranges = field(default_factory=Ranges)
    images: str = ""
    binaries: str = ""
