"""The state directory: the records of clusters, and of what was changed on the host.

Whoever changes a cluster holds the lock on its directory (machine.edge.locks), so no lock file stays behind.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from typing import Any

from controlplane.cluster.advice import ours
from controlplane.cluster.edge.roots import state_root
from controlplane.cluster.model import Cluster, is_name
from controlplane.machine.edge import files
from nodelib.errors import Invalid
from nodelib.files import no_link

_HOST_FILE = ".host.json"
_RECORD = "cluster.json"
_MOST = 4 << 20  # bytes of a record


def load(name: str) -> Cluster | None:
    """The cluster of that name, or None. Raises Invalid when its record cannot be read."""
    path = os.path.join(state_root(), name, _RECORD)
    if not exists(name):
        return None
    try:
        found = Cluster.from_json(_record(path), state_root())
        found.to_json(), found.nodes, found.api_url  # what everybody reads of it, worked out once
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Invalid(
            f"cannot be read: {error!r}",
            obj=path,
            action=f"Remove the cluster with {ours(name, 'down')} and raise it again.",
        ) from error
    return found


def _record(path: str) -> dict[str, Any]:
    """The record as it is written. Raises OSError, also for a link or a pipe, and ValueError for what is no JSON."""
    with open(path, "rb", opener=no_link) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", path)
        found: dict[str, Any] = json.loads(file.read(_MOST))
    return found


def load_readable(name: str) -> Cluster | None:
    """load(), with None for a record that cannot be read: `status` reports it."""
    try:
        return load(name)
    except Invalid:
        return None


def exists(name: str) -> bool:
    """Whether the cluster has a state directory, even without a readable record.

    What is in it tells: NODEWRIGHT_STATE may name a directory that has others', such as /home, and `down` removes all
    of a cluster's.
    """
    folder = os.path.join(state_root(), name)
    if not is_name(name):
        return False
    try:
        known = os.lstat(folder)
        if not stat.S_ISDIR(known.st_mode) or known.st_uid not in (0, os.geteuid()):
            return False
        found: Any = _record(os.path.join(folder, _RECORD))
    except FileNotFoundError:
        return all(os.path.isdir(os.path.join(folder, part)) for part in ("ns", "pki"))
    except (ValueError, RecursionError):
        return True  # a record that is damaged
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EPERM)  # whoever may not read it is told so
    return isinstance(found, dict) and found.get("name") == name


def check_place(name: str) -> None:
    """Raises Invalid when there is something else in the place of the cluster's state directory."""
    folder = os.path.join(state_root(), name)
    if os.path.islink(folder) or (os.path.lexists(folder) and not exists(name) and not _is_empty(folder)):
        raise Invalid(
            "this is not a directory of a cluster: it was left as it is",
            obj=folder,
            step="look for the cluster's state",
            action="Give another --name, or another NODEWRIGHT_STATE.",
        )


def _is_empty(folder: str) -> bool:
    try:
        return all(name == f".{_RECORD}.new" for name in os.listdir(folder))
    except OSError:
        return False


def save(cluster: Cluster) -> None:
    """Write the cluster's record."""
    files.write(os.path.join(cluster.dir, _RECORD), json.dumps(cluster.to_json(), indent=1))


def clusters() -> list[str]:
    """Names of all clusters on this machine."""
    try:
        names = sorted(os.listdir(state_root()))
    except FileNotFoundError:
        return []
    return [name for name in names if exists(name)]


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
