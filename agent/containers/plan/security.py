"""Security contexts of pods and containers as CRI messages.

Follows pkg/securitycontext and pkg/kubelet/kuberuntime (security_context.go, helpers.go): the
container's fields win over the pod's.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.common.model.pod_settings import PodDefaults
from agent.common.model.pods import ImageFacts, Pod
from nodelib.errors import Invalid, Permanent
from nodelib.json_values import Json

_INHERITED = ("seLinuxOptions", "runAsUser", "runAsGroup", "runAsNonRoot")
_MAX_ID = 2**31 - 1

# In sync with upstream's list, which follows moby's oci/defaults.go.
_MASKED = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"


def effective(pod: Pod, container: Json) -> Json:
    """The container's security context over what it inherits from the pod's."""
    of_pod = pod.spec.get("securityContext") or {}
    own = {key: value for key, value in (container.get("securityContext") or {}).items() if value is not None}
    return {key: of_pod[key] for key in _INHERITED if of_pod.get(key) is not None} | own


def verify_run_as_non_root(pod: Pod, container: Json, image: ImageFacts) -> None:
    """Raises Permanent when runAsNonRoot is violated, or cannot be checked because the image's user is a name."""
    context = effective(pod, container)
    if not context.get("runAsNonRoot"):
        return
    where = f'(pod: "{pod.name}_{pod.namespace}({pod.uid})", container: {container["name"]})'
    if context.get("runAsUser") is not None:
        if context["runAsUser"] == 0:
            raise _root(f"container's runAsUser breaks non-root policy {where}")
        return
    uid, username = image_user(image)
    if uid is None and username:
        raise _root(
            f"container has runAsNonRoot and image has non-numeric user ({username}), "
            f"cannot verify user is non-root {where}"
        )
    if uid == 0:
        raise _root(f"container has runAsNonRoot and image will run as root {where}")
    if uid is not None and not 0 <= uid <= _MAX_ID:
        raise _root(f"container has runAsNonRoot and image has an invalid user id ({uid}) {where}")


def image_user(image: ImageFacts) -> tuple[int | None, str]:
    """(uid, "") or (None, name); an image without a user runs as root."""
    if image.uid is not None:
        return image.uid, ""
    if image.username:
        return None, image.username
    return 0, ""


def namespaces(pod: Pod, users: Json, target_id: str = "") -> Json:
    """CRI NamespaceOption. `users`: UserNamespace, {} for the node's; `target_id`: the container whose PID namespace
    an ephemeral container joins.
    """
    if pod.spec.get("hostPID"):
        pid = "NODE"
    elif pod.spec.get("shareProcessNamespace"):
        pid = "POD"
    else:
        pid = "CONTAINER"
    options: Json = {
        "ipc": "NODE" if pod.spec.get("hostIPC") else "POD",
        "network": "NODE" if pod.host_network else "POD",
        "pid": pid,
    }
    if users:
        options["userns_options"] = users
    if target_id and pid == "CONTAINER":
        options |= {"pid": "TARGET", "target_id": target_id}
    return options


def supplemental_groups(pod: Pod, extra: Sequence[int] = ()) -> Json:
    """The field supplemental_groups and, if the pod sets it, supplemental_groups_policy."""
    context = pod.spec.get("securityContext") or {}
    groups = [context["fsGroup"]] if context.get("fsGroup") is not None else []
    fields: Json = {"supplemental_groups": [*groups, *(context.get("supplementalGroups") or []), *extra]}
    policy = context.get("supplementalGroupsPolicy")
    if policy is not None:
        if policy not in ("Merge", "Strict"):
            raise Invalid(f"unsupported supplementalGroupsPolicy: {policy}", obj=f"pod {pod.full_name}")
        fields["supplemental_groups_policy"] = policy
    return fields


def seccomp(pod: Pod, container: Json, settings: PodDefaults) -> Json:
    """CRI SecurityProfile: the container's, the pod's, or the node's default."""
    own = (container.get("securityContext") or {}).get("seccompProfile")
    profile = own or (pod.spec.get("securityContext") or {}).get("seccompProfile")
    if not profile:
        return {"profile_type": "RuntimeDefault" if settings.seccomp_default else "Unconfined"}
    if profile.get("type") != "Localhost":
        return {"profile_type": "RuntimeDefault" if profile.get("type") == "RuntimeDefault" else "Unconfined"}
    name = profile.get("localhostProfile")
    if not name:
        raise Invalid(
            "localhostProfile must be set if seccompProfile type is Localhost.",
            obj=f"pod {pod.full_name}",
            step=f"container {container['name']}",
        )
    return {"profile_type": "Localhost", "localhost_ref": f"{settings.seccomp_profile_root}/{name}"}


def apparmor(pod: Pod, container: Json) -> Json:
    """The fields apparmor and apparmor_profile (older runtimes); empty when no profile is set."""
    own = (container.get("securityContext") or {}).get("appArmorProfile")
    profile = own or _apparmor_annotation(pod, container)
    profile = profile or (pod.spec.get("securityContext") or {}).get("appArmorProfile")
    if not profile:
        return {}
    match profile.get("type"):
        case "RuntimeDefault":
            return {"apparmor": {"profile_type": "RuntimeDefault"}, "apparmor_profile": "runtime/default"}
        case "Unconfined":
            return {"apparmor": {"profile_type": "Unconfined"}, "apparmor_profile": "unconfined"}
        case "Localhost" if profile.get("localhostProfile"):
            name = profile["localhostProfile"]
            return {
                "apparmor": {"profile_type": "Localhost", "localhost_ref": name},
                "apparmor_profile": f"localhost/{name}",
            }
        case "Localhost":
            raise Invalid("missing localhost apparmor profile name", obj=f"pod {pod.full_name}")
    raise Invalid(f"unknown apparmor profile type: {profile.get('type')!r}", obj=f"pod {pod.full_name}")


def needs_apparmor(pod: Pod) -> bool:
    """Whether the pod sets a profile: a node without AppArmor must not run it unconfined."""
    contexts = [
        pod.spec.get("securityContext") or {},
        *(one.get("securityContext") or {} for _, one in pod.containers()),
    ]
    profiles = [found["appArmorProfile"] for found in contexts if found.get("appArmorProfile")]
    noted = [
        text for name, text in (pod.meta.get("annotations") or {}).items() if name.startswith(_APPARMOR_ANNOTATION)
    ]
    return any(one.get("type") != "Unconfined" for one in profiles) or any(text != "unconfined" for text in noted)


def _apparmor_annotation(pod: Pod, container: Json) -> Json | None:
    text = (pod.meta.get("annotations") or {}).get(_APPARMOR_ANNOTATION + container["name"], "")
    if text == "runtime/default":
        return {"type": "RuntimeDefault"}
    if text == "unconfined":
        return {"type": "Unconfined"}
    if text.startswith("localhost/"):
        return {"type": "Localhost", "localhostProfile": text.removeprefix("localhost/")}
    return None


def container_context(
    pod: Pod,
    container: Json,
    image: ImageFacts,
    settings: PodDefaults,
    *,
    users: Json,
    target_id: str = "",
    extra_masked: Sequence[str] = (),
    extra_groups: Sequence[int] = (),
) -> Json:
    """CRI LinuxContainerSecurityContext. Raises Permanent or Invalid for what cannot be granted.

    `users`: the pod's UserNamespace.
    """
    verify_run_as_non_root(pod, container, image)
    context = effective(pod, container)
    unmasked = context.get("procMount") == "Unmasked"
    made: Json = {
        "privileged": bool(context.get("privileged")),
        "readonly_rootfs": bool(context.get("readOnlyRootFilesystem")),
        "no_new_privs": context.get("allowPrivilegeEscalation") is False,
        "namespace_options": namespaces(pod, users, target_id),
        "seccomp": seccomp(pod, container, settings),
        "masked_paths": [] if unmasked else [*_MASKED, *extra_masked],
        "readonly_paths": [] if unmasked else list(_READ_ONLY),
        **supplemental_groups(pod, extra_groups),
        **apparmor(pod, container),
        **_user(context, image),
    }
    if capabilities := context.get("capabilities"):
        made["capabilities"] = {
            "add_capabilities": list(capabilities.get("add") or []),
            "drop_capabilities": list(capabilities.get("drop") or []),
        }
    if options := context.get("seLinuxOptions"):
        made["selinux_options"] = selinux(options)
    return made


def selinux(options: Json) -> Json:
    """CRI SELinuxOption."""
    return {key: options.get(key) or "" for key in ("user", "role", "type", "level")}


def _user(context: Json, image: ImageFacts) -> Json:
    fields: Json = {}
    if context.get("runAsGroup") is not None:
        fields["run_as_group"] = {"value": context["runAsGroup"]}
    if context.get("runAsUser") is not None:
        return fields | {"run_as_user": {"value": context["runAsUser"]}}
    uid, username = image_user(image)
    if uid is not None:
        return fields | {"run_as_user": {"value": uid}}
    return fields | {"run_as_username": username}


def _root(message: str) -> Permanent:
    return Permanent(
        message, action="Set runAsUser to a number other than 0, use an image with such a user, or drop runAsNonRoot."
    )
