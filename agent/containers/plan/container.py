"""CRI ContainerConfig of one container attempt. Follows generateContainerConfig of kuberuntime_container.go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.common.model import labels
from agent.common.model.pods import Pod
from agent.containers.model import MountPlan
from agent.containers.plan.expand import Budget, expand_all
from agent.devices.model.devices import NO_DEVICES, DeviceGrant
from nodelib.errors import Invalid
from nodelib.json_values import Json

_LONG = 64 * 1024  # characters of a command with its arguments
_TERMINATION_LOG = "/dev/termination-log"


def container_config(
    pod: Pod,
    container: Json,
    *,
    attempt: int,
    image_ref: str,
    env: Mapping[str, str],
    mounts: Sequence[Json],
    resources: Json,
    security_context: Json,
    block_devices: Sequence[Json] = (),
    granted: DeviceGrant = NO_DEVICES,
) -> Json:
    """The configuration; environment, mounts, security context and resources are passed in ready-made.

    `block_devices`: raw block volumes; `granted`: what device plugins and DRA drivers give the container.
    """
    budget = Budget()
    config: Json = {
        "metadata": {"name": container["name"], "attempt": attempt},
        "image": {"image": image_ref, "user_specified_image": container.get("image", "")},
        "command": expand_all(container.get("command"), env, budget),
        "args": expand_all(container.get("args"), env, budget),
        "working_dir": container.get("workingDir") or "",
        "labels": labels.container_labels(pod, container),
        "annotations": {**labels.container_annotations(pod, container, attempt), **granted.annotations},
        # The container's own variables win: of two entries of one name the runtime takes the later one.
        "envs": [{"key": name, "value": value} for name, value in {**granted.envs, **env}.items()],
        "mounts": _with_users([*mounts, *granted.mounts], security_context),
        "devices": [*block_devices, *granted.devices],
        "CDI_devices": [{"name": name} for name in granted.cdi_devices],
        "log_path": log_path(container["name"], attempt),
        "stdin": bool(container.get("stdin")),
        "stdin_once": bool(container.get("stdinOnce")),
        "tty": bool(container.get("tty")),
        "linux": {"resources": resources, "security_context": security_context},
    }
    signal = (container.get("lifecycle") or {}).get("stopSignal")
    if signal:
        config["stop_signal"] = stop_signal(signal)
    return config


def is_long(container: Json) -> bool:
    """Whether putting its command together takes more than some milliseconds."""
    words = (*(container.get("command") or ()), *(container.get("args") or ()))
    return sum(len(word) for word in words if isinstance(word, str)) > _LONG


def log_path(name: str, attempt: int) -> str:
    """Relative to the sandbox's log_directory."""
    return f"{name}/{attempt}.log"


def stop_signal(name: str) -> str:
    """The CRI enum's name: SIGRTMIN+1 is SIGRTMINPLUS1 there."""
    made = name.replace("+", "PLUS").replace("-", "MINUS")
    if not made.startswith("SIG") or not made.isalnum():
        raise Invalid(f"stopSignal {name!r} is not a signal name", action="Write it as in SIGTERM or SIGRTMIN+3.")
    return made


def termination_path(container: Json) -> str:
    """The path of the termination message in the container; "" for none."""
    path = container.get("terminationMessagePath", _TERMINATION_LOG)
    return "" if not path else path if path.startswith("/") else f"/{path}"


def cri_mount(plan: MountPlan, host_path: str = "") -> Json:
    """CRI Mount. `host_path` is the resolved path of a sub path."""
    mount: Json = {
        "container_path": plan.container_path,
        "host_path": host_path or plan.host_path,
        "readonly": plan.read_only,
        "recursive_read_only": plan.recursive_read_only,
        "propagation": plan.propagation,
    }
    if plan.relabels:
        mount["selinux_relabel"] = True
    if plan.image:
        image = {"image": plan.image_ref or plan.image, "user_specified_image": plan.image}
        mount |= {"host_path": "", "image": image, "image_sub_path": plan.image_sub_path}
    return mount


def file_mount(container_path: str, host_path: str, *, selinux: bool = False) -> Json:
    """A file the agent manages: /etc/hosts, the termination message."""
    made: Json = {"container_path": container_path, "host_path": host_path, "readonly": False}
    return made | {"selinux_relabel": True} if selinux else made


def _with_users(mounts: Sequence[Json], security_context: Json) -> list[Json]:
    """The mounts with the mapping of the pod's users, if it has one: its root sees files of the node's root as its own,
    and what it writes has the owners that it would have without a user namespace."""
    users = security_context["namespace_options"].get("userns_options")
    if not users:
        return list(mounts)
    return [{**mount, "uidMappings": users["uids"], "gidMappings": users["gids"]} for mount in mounts]
