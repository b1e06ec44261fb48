"""The files of pods that the agent itself reads and writes: termination messages, log links, log directories."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from itertools import islice

from agent.common.model.file_names import is_file_name
from agent.common.model.labels import POD_NAME, POD_NAMESPACE, TERMINATION_PATH, TERMINATION_POLICY
from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import ContainerState, Pod
from nodelib import file_trees, files
from nodelib.json_values import decode as decode_json
from nodelib.threads import alone

log = logging.getLogger(__name__)

MOST_NAMES = 10_000  # that are looked at in a folder of logs
_MESSAGE_BYTES = 4096  # of a termination message
_LOG_BYTES, _LOG_LINES = 2048, 80  # of the end of the log, if that is the message
_MESSAGE_LIMIT = 10.0  # seconds in which a termination message is read
_HANGING, _HANGING_OF_POD = 64, 4  # reads of messages that go on after that time


class PodFiles:
    """agent.common.ports.PodFiles. `reading`: of each message that a thread reads, the pod and since when."""

    def __init__(
        self,
        pod_logs_dir: str = "/var/log/pods",
        links_dir: str = "/var/log/containers",
        root_dir: str = "/var/lib/kubelet",
    ) -> None:
        self._pod_logs, self._links, self._root_dir = pod_logs_dir, links_dir, root_dir
        self.reading: dict[object, tuple[str, float]] = {}

    async def termination_message(self, container: ContainerState) -> str:
        # The path of the message may be one in a volume, whose server may be gone: that holds up no other pod, and this
        # one's status no longer than that. Nor do its restarts leave threads without end.
        path, now = container.annotations.get(TERMINATION_PATH, ""), time.monotonic()
        hanging = [uid for uid, began in tuple(self.reading.values()) if now - began >= _MESSAGE_LIMIT]
        if len(hanging) >= _HANGING or hanging.count(container.uid) >= _HANGING_OF_POD:
            return f"Error on reading termination log {path}: reads of {len(hanging)} others go on"
        try:
            async with asyncio.timeout(_MESSAGE_LIMIT):
                return await alone(self._read_message, container, now)
        except TimeoutError:
            return f"Error on reading termination log {path}: no answer in {_MESSAGE_LIMIT:g} s"

    def _read_message(self, container: ContainerState, began: float) -> str:
        this = object()
        self.reading[this] = container.uid, began
        try:
            return _termination_message(container)
        finally:
            del self.reading[this]

    async def container_started(self, pod: Pod, name: str, container_id: str, log_path: str) -> None:
        await asyncio.to_thread(self._link, log_path, _link_name(pod.name, pod.namespace, name, container_id))

    async def remove_container_logs(self, container: ContainerState) -> None:
        await alone(self._remove_logs, container)

    async def remove_pod_logs(self, pod: Pod) -> None:
        await alone(self._remove_pod, pod)

    async def logged_pods(self) -> frozenset[str]:
        return await alone(self._logged)

    async def remove_left_logs(self, uid: str) -> None:
        await alone(self._remove_left, uid)

    def _logged(self) -> frozenset[str]:
        return frozenset(name.rpartition("_")[2] for name in _listed(self._pod_logs) if name.count("_") >= 2)

    def _link(self, target: str, name: str) -> None:
        try:
            os.makedirs(self._links, exist_ok=True)
            os.symlink(target, f"{self._links}/{name}")
        except FileExistsError:
            return
        except OSError as error:
            log.warning("cannot make the log link %s: %s; kubectl logs still works", name, error)

    def _remove_message(self, container: ContainerState) -> None:
        """Remove the container's termination message; upstream leaves one more at each restart, of any size."""
        folder = PodPaths(self._root_dir, container.uid).container(container.name)
        for mount in container.mounts:
            path = str(mount.get("host_path", ""))
            if os.path.dirname(path) == folder and ".." not in path.split("/"):
                _unlink(path)

    def _remove_logs(self, container: ContainerState) -> None:
        self._remove_message(container)
        labels = container.labels
        link = _link_name(labels.get(POD_NAME, ""), labels.get(POD_NAMESPACE, ""), container.name, container.id)
        if is_file_name(link):
            _unlink(f"{self._links}/{link}")
        if os.path.normpath(container.log_path).startswith(self._pod_logs + "/"):
            folder, base = os.path.split(container.log_path)
            for name in _listed(folder):
                if name == base or name.startswith(base + "."):
                    _unlink(f"{folder}/{name}")

    def _remove_left(self, uid: str) -> None:
        for name in _listed(self._pod_logs):
            namespace, _, rest = name.partition("_")
            pod, _, found = rest.rpartition("_")
            if found == uid and namespace and pod:
                self._remove_folder(name, f"{pod}_{namespace}_")

    def _remove_pod(self, pod: Pod) -> None:
        self._remove_folder(f"{pod.namespace}_{pod.name}_{pod.uid}", f"{pod.name}_{pod.namespace}_")

    def _remove_folder(self, folder: str, prefix: str) -> None:
        if not is_file_name(folder):  # a runtime's label that is no name
            log.warning("the logs in %r are left alone: that is not a folder of a pod", folder)
            return
        try:
            file_trees.remove(f"{self._pod_logs}/{folder}")
        except OSError as error:
            log.warning("cannot remove the logs in %s/%s: %s", self._pod_logs, folder, error)
        for name in _listed(self._links):
            path = f"{self._links}/{name}"
            if name.startswith(prefix) and os.path.islink(path) and not os.path.exists(path):
                _unlink(path)


def _termination_message(container: ContainerState) -> str:
    path = container.annotations.get(TERMINATION_PATH, "")
    wants_log = (
        container.annotations.get(TERMINATION_POLICY) == "FallbackToLogsOnError"
        and container.exit_code != 0
        and container.reason != "ContainerCannotRun"
    )
    path = path if not path or path.startswith("/") else f"/{path}"
    for mount in container.mounts if path else ():
        if mount.get("container_path") != path:
            continue
        try:
            data = _tail(mount["host_path"], _MESSAGE_BYTES)
        except FileNotFoundError:
            break
        except OSError as error:
            return f"Error on reading termination log {mount['host_path']}: {error}"
        if data:
            return data.decode(errors="replace")
        break
    return _end_of_log(container.log_path) if wants_log else ""


def _end_of_log(path: str) -> str:
    try:
        # The time, stream and tag of a CRI log line take about 45 bytes.
        raw = _tail(path, _LOG_BYTES + _LOG_LINES * 64).decode(errors="replace")
    except OSError as error:
        return f"Error reading from container log: {error}"
    lines = [_content(line) for line in raw.removesuffix("\n").split("\n")[-_LOG_LINES:]]
    return "".join(lines).encode()[-_LOG_BYTES:].decode(errors="replace")


def _content(line: str) -> str:
    if line.startswith("{"):
        try:
            return str(decode_json(line).get("log", ""))
        except json.JSONDecodeError:  # a piece of a line of the container may look like JSON
            return line + "\n"
    fields = line.split(" ", 3)
    if len(fields) < 4:
        return ""
    return fields[3] + ("" if fields[2].startswith("P") else "\n")


def _tail(path: str, limit: int) -> bytes:
    # A container may have replaced its file by a link or a device.
    handle = files.readable(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - limit))
        return file.read(limit)


def _link_name(pod: str, namespace: str, container: str, container_id: str) -> str:
    prefix = f"{pod}_{namespace}_{container}"[: 255 - len(container_id) - 5]
    return f"{prefix}-{container_id}.log"


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("cannot remove %s: %s", path, error)


def _listed(folder: str) -> list[str]:
    """The first MOST_NAMES names, in no order: a pod may have the folder, and make millions."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, MOST_NAMES)]
    except OSError:
        return []
