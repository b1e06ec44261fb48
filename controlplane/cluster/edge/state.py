"""The state directory: the records of clusters, and of what was changed on the host.

Whoever changes a cluster holds the lock on its directory (machine.edge.locks), so no lock file stays behind.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from controlplane.cluster.advice import ours
from controlplane.cluster.edge.roots import state_root
from controlplane.cluster.model import Cluster
from controlplane.machine.edge import files
from nodelib.errors import Invalid

_HOST_FILE = ".host.json"


def load(name: str) -> Cluster | None:
    """The cluster of that name, or None. Raises Invalid when its record cannot be read."""
    path = os.path.join(state_root(), name, "cluster.json")
    try:
        with open(path, encoding="utf-8") as file:
            return Cluster.from_json(json.load(file), state_root())
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid(
            f"cannot be read: {error!r}",
            obj=path,
            action=f"Remove the cluster with {ours(name, 'down')} and raise it again.",
        ) from error


def load_readable(name: str) -> Cluster | None:
    """load(), with None for a record that cannot be read: `status` reports it."""
    try:
        return load(name)
    except Invalid:
        return None


def exists(name: str) -> bool:
    """Whether the cluster has a state directory, even without a readable record."""
    return os.path.isdir(os.path.join(state_root(), name))


def save(cluster: Cluster) -> None:
    """Write the cluster's record."""
    files.write(os.path.join(cluster.dir, "cluster.json"), json.dumps(cluster.to_json(), indent=1))


def clusters() -> list[str]:
    """Names of all clusters on this machine."""
    try:
        names = sorted(os.listdir(state_root()))
    except FileNotFoundError:
        return []
    return [name for name in names if os.path.isdir(os.path.join(state_root(), name))]


def host_record() -> dict[str, Any]:
    """What clusters changed on the host, for the last `down` to undo: {"dirs": [made], "sysctls": {name: before}}."""
    try:
        with open(os.path.join(state_root(), _HOST_FILE), encoding="utf-8") as file:
            record: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return {"dirs": [], "files": [], "sysctls": {}}
    return record


def save_host_record(record: dict[str, Any]) -> None:
    """Write it; the caller holds the lock of the state root."""
    files.write(os.path.join(state_root(), _HOST_FILE), json.dumps(record))


def delete_host_record() -> None:
    """Delete it: nothing of ours is left on the host."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(state_root(), _HOST_FILE))
