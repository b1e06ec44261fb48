"""Messages of runtime/v1 to values and back. No I/O.

Configurations are plain dicts with the proto's field names; the generated classes take them as keyword arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cri_api.v1 import api_pb2
from google.protobuf import message_factory

from agent.common.model.errors import CriInvalid
from agent.common.model.pods import ContainerState, ImageFacts, RunState, SandboxState, is_uid
from agent.runtime.model import RuntimeEvent, pod_ips
from nodelib.json_values import Json
from nodelib.plugin_apis.plain import to_plain
from nodelib.text import cut

_STATES = {
    api_pb2.CONTAINER_CREATED: RunState.CREATED,
    api_pb2.CONTAINER_RUNNING: RunState.RUNNING,
    api_pb2.CONTAINER_EXITED: RunState.EXITED,
}
POD_UID = "io.kubernetes.pod.uid"
_MOST_MESSAGE = 16 * 1024  # bytes; the runtime's errors quote what the pod says: a command, a path, of megabytes
_MOST_GROUPS = 1024  # that are shown: an image may name its user in a million, with which no process can be started
# Texts of containerd (internal/cri/server/container_start.go). A start cancelled in _LAST_CALL may have run something.
_FAILED_START, _CALLER_GONE, _LAST_CALL = "StartError", "context canceled", "failed to start containerd task"
# A containerd that was killed during a start removes the container's pipes and still lists it as created (restart.go):
# it can never be started.
_PIPES_GONE = ("failed to start io pipe copy", "no such file or directory")


def sandbox_listed(item: Any) -> SandboxState:
    """A PodSandbox of ListPodSandbox, which has no addresses."""
    return SandboxState(
        id=item.id,
        uid=_uid(item.metadata.uid),
        namespace=item.metadata.namespace,
        name=item.metadata.name,
        attempt=item.metadata.attempt,
        ready=item.state == api_pb2.SANDBOX_READY,
        created_at=item.created_at,
        runtime_handler=item.runtime_handler,
        labels=dict(item.labels),
        annotations=dict(item.annotations),
    )


def sandbox_status(status: Any) -> SandboxState:
    """A PodSandboxStatus, with its addresses and network mode."""
    ips = pod_ips((status.network.ip, *(extra.ip for extra in status.network.additional_ips)))
    mode = _name(api_pb2.NamespaceMode, status.linux.namespaces.options.network)
    return SandboxState(
        id=status.id,
        uid=_uid(status.metadata.uid),
        namespace=status.metadata.namespace,
        name=status.metadata.name,
        attempt=status.metadata.attempt,
        ready=status.state == api_pb2.SANDBOX_READY,
        created_at=status.created_at,
        ips=ips,
        runtime_handler=status.runtime_handler,
        network_mode=mode,
        labels=dict(status.labels),
        annotations=dict(status.annotations),
    )


def container_listed(item: Any, runtime: str = "containerd") -> ContainerState:
    """A Container of ListContainers, which has neither times nor exit code."""
    return ContainerState(
        id=item.id,
        sandbox_id=item.pod_sandbox_id,
        uid=_uid(item.labels.get(POD_UID, "")),
        name=item.metadata.name,
        attempt=item.metadata.attempt,
        state=_STATES.get(item.state, RunState.UNKNOWN),
        created_at=item.created_at,
        image=item.image.image,
        image_ref=item.image_ref,
        image_id=item.image_id,
        labels=dict(item.labels),
        annotations=dict(item.annotations),
        runtime=runtime,
    )


def container_status(status: Any, runtime: str = "containerd") -> ContainerState:
    """A ContainerStatus. It does not name its sandbox, which the caller knows from the list.

    A container whose start was cut off with its caller or with the runtime never ran: it counts as created.
    """
    was_cut = _start_was_cut(status)
    return ContainerState(
        id=status.id,
        sandbox_id="",
        uid=_uid(status.labels.get(POD_UID, "")),
        name=status.metadata.name,
        attempt=status.metadata.attempt,
        state=RunState.CREATED if was_cut else _STATES.get(status.state, RunState.UNKNOWN),
        created_at=status.created_at,
        started_at=status.started_at,
        finished_at=0 if was_cut else status.finished_at,
        exit_code=0 if was_cut else status.exit_code,
        reason=status.reason,
        message=cut(status.message, _MOST_MESSAGE),
        image=status.image.image,
        image_ref=status.image_ref,
        image_id=status.image_id,
        log_path=status.log_path,
        labels=dict(status.labels),
        annotations=dict(status.annotations),
        mounts=tuple(_mount(one) for one in status.mounts),
        resources=to_plain(status.resources.linux) if status.resources.HasField("linux") else {},
        user=_user(status.user.linux) if status.user.HasField("linux") else {},
        stop_signal=_name(api_pb2.Signal, status.stop_signal) if status.stop_signal else "",
        cut=was_cut,
        runtime=runtime,
    )


def event(message: Any, runtime: str = "containerd") -> RuntimeEvent:
    """A ContainerEventResponse, without what it says of containers other than the one that has exited: that was read
    some time before the event is sent."""
    kind = _name(api_pb2.ContainerEventType, message.container_event_type)
    ended = None
    if message.container_event_type == api_pb2.CONTAINER_STOPPED_EVENT:
        found = (one for one in message.containers_statuses if one.id == message.container_id)
        ended = next((container_status(one, runtime) for one in found if one.state == api_pb2.CONTAINER_EXITED), None)
    return RuntimeEvent(_uid(message.pod_sandbox_status.metadata.uid), message.container_id, kind, ended)


def _uid(text: str) -> str:
    """ "" for a UID that is none: folders are made and removed by it, so what has it is not a pod of this node."""
    return text if is_uid(text) else ""


def _name(enum: Any, number: int) -> str:
    """The name of an enum's value; "" for one that this version of the API does not have."""
    found = enum.DESCRIPTOR.values_by_number.get(number)
    return str(found.name) if found is not None else ""


def _start_was_cut(status: Any) -> bool:
    if status.state != api_pb2.CONTAINER_EXITED or status.started_at or status.reason != _FAILED_START:
        return False
    message = status.message
    cancelled = _CALLER_GONE in message and _LAST_CALL not in message
    return cancelled or all(text in message for text in _PIPES_GONE)


def _mount(mount: Any) -> Json:
    """What is asked about one of a container's mounts, of which a pod has room for 25,000."""
    found: Json = {
        "container_path": mount.container_path,
        "host_path": mount.host_path,
        "recursive_read_only": mount.recursive_read_only,
    }
    return found | {"image": {"image": mount.image.image}} if mount.HasField("image") else found


def _user(user: Any) -> Json:
    return {"uid": user.uid, "gid": user.gid, "supplemental_groups": list(user.supplemental_groups[:_MOST_GROUPS])}


def layers(stats: Any) -> Json:
    """Of a PodSandboxStats the writable layers of its containers: the rest is read from the node's cgroups."""
    return {
        "linux": {
            "containers": [
                {
                    "attributes": {"id": one.attributes.id},
                    "writable_layer": {
                        "timestamp": one.writable_layer.timestamp,
                        "used_bytes": {"value": one.writable_layer.used_bytes.value},
                        "inodes_used": {"value": one.writable_layer.inodes_used.value},
                    },
                }
                for one in stats.linux.containers
            ]
        }
    }


def image_facts(image: Any) -> ImageFacts:
    return ImageFacts(
        id=image.id,
        repo_tags=tuple(image.repo_tags),
        repo_digests=tuple(image.repo_digests),
        size=image.size,
        uid=image.uid.value if image.HasField("uid") else None,
        username=image.username,
        pinned=image.pinned,
    )


def build(kind: Any, step: str, obj: str, **fields: Any) -> Any:
    """A message of class `kind`. Raises CriInvalid, which names the field with the wrong value."""
    try:
        return kind(**fields)
    except (TypeError, ValueError) as error:
        path, cause = _misfit(kind, fields) or ("", error)
        raise CriInvalid(
            f"{path or kind.DESCRIPTOR.name}: {cause}",
            code="INVALID_ARGUMENT",
            obj=obj,
            step=step,
            action="Correct the field of the pod that it comes from; `kubectl explain pod.spec` has its type.",
        ) from error


def _misfit(kind: Any, fields: Mapping[str, Any]) -> tuple[str, Exception] | None:
    """Path and error of the first field that `kind` does not accept."""
    for name, value in fields.items():
        try:
            kind(**{name: value})
        except (TypeError, ValueError) as error:
            field = kind.DESCRIPTOR.fields_by_name.get(name)
            return _misfit_inside(field, name, value) or (name, error)
    return None


def _misfit_inside(field: Any, name: str, value: Any) -> tuple[str, Exception] | None:
    if field is None or field.message_type is None or field.message_type.GetOptions().map_entry:
        return None
    kind = message_factory.GetMessageClass(field.message_type)
    entries = (
        [(f"{name}[{index}]", one) for index, one in enumerate(value)] if isinstance(value, list) else [(name, value)]
    )
    for at, one in entries:
        found = _misfit(kind, one) if isinstance(one, Mapping) else None
        if found is not None:
            return f"{at}.{found[0]}", found[1]
    return None
