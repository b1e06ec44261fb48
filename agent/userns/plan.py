"""Which IDs a pod gets, and what the file says that remembers them.

Follows pkg/kubelet/userns/userns_manager.go and getKubeletMappings of pkg/kubelet/kubelet_pods.go. Three things differ:
a pod keeps its range when the configuration changes; the lowest free range is taken, not any; and the last range is
never given, since the kernel refuses a mapping of ID 4294967295 (user_namespaces(7)).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from agent.common.model.pods import Pod
from agent.userns.model import UNIT, IdRange, UserNamespaceSettings
from nodelib.errors import Invalid, Permanent
from nodelib.json_values import Json, compact, decode, object_or_empty, objects_in
from nodelib.text_numbers import is_number

USER = "kubelet"  # whose subordinate IDs are given to pods
_NO_ID = 2**32 - 1  # (uid_t)-1
_OTHER_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")


def wants_own_users(pod: Pod) -> bool:
    """Whether the pod asks for a user namespace of its own; the host's is the default."""
    return pod.spec.get("hostUsers") is False


def contradictions(spec: Json) -> list[str]:
    """The fields of a pod's spec that contradict its `hostUsers: false` (validateHostUsers of upstream's validation).

    An API server refuses such pods, unless its gate UserNamespacesHostNetworkSupport is on; nobody else checks a
    manifest of a static pod.
    """
    return [name for name in _OTHER_NAMESPACES if spec.get(name)] if spec.get("hostUsers") is False else []


def check(pod: Pod, handler: str, supporting: Collection[str]) -> None:
    """Raise Permanent unless the pod can have users of its own; `supporting`: the runtime's handlers that know them."""
    if found := contradictions(pod.spec):
        raise Invalid(
            f"hostUsers: false does not go with {' and '.join(f'{name}: true' for name in found)}",
            obj=f"pod {pod.full_name}",
            step="user namespace",
            action="Remove one of them from the pod.",
        )
    if handler in supporting:
        return
    who = f'RuntimeClass handler "{handler}"' if handler else "runtime"
    raise Permanent(
        f"can't set `spec.hostUsers: false`, {who} does not support user namespaces",
        obj=f"pod {pod.full_name}",
        step="user namespace",
        action="Give the node runc 1.2 or newer (or crun 1.9) and containerd 2.0 or newer (or CRI-O 1.30), and restart "
        "the runtime; or remove hostUsers from the pod, whose root is then the node's.",
    )


def default_pool(ids_per_pod: int) -> IdRange:
    """All IDs but the first of the host's own, and the last."""
    return IdRange(ids_per_pod, 2**32 - 2 * ids_per_pod)


def subordinate_pool(users: str, groups: str) -> IdRange:
    """What `getsubids` and `getsubids -g` print of USER: one line such as "0: kubelet 65536 7208960", twice the same.

    Raises Invalid.
    """
    if users != groups:
        raise _no_pool(f"{USER} has other subordinate users ({users.strip()[:80]}) than groups ({groups.strip()[:80]})")
    fields = users.split()
    if len(users.strip().splitlines()) != 1 or len(fields) != 4 or not all(map(is_number, fields[2:])):
        raise _no_pool(f"{USER} must have one range of subordinate IDs, and getsubids prints {users.strip()[:200]!r}")
    return IdRange(int(fields[2]), int(fields[3]))


def check_pool(pool: IdRange, settings: UserNamespaceSettings) -> None:
    """Raise Invalid unless the pool has aligned ranges for all the pods that the node may have."""
    length, pods = settings.ids_per_pod, pool.length // settings.ids_per_pod
    if pool.first % length or pool.length % length:
        raise _no_pool(f"there are {pool.length} from {pool.first}: both must be multiples of {length}")
    if pool.first < length or pool.end > 2**32:
        raise _no_pool(f"they are {pool.first} to {pool.end - 1}: pods can have {length} to {_NO_ID}")
    if pods < settings.max_pods:
        raise _no_pool(f"there are enough for {pods} pods of {length} each, and maxPods is {settings.max_pods}")


def free_range(pool: IdRange, length: int, taken: Iterable[IdRange]) -> IdRange | None:
    """The lowest range of the pool that overlaps none of those that are taken; None when all are."""
    first = pool.first
    for other in sorted(taken, key=lambda one: one.first):
        if first + length <= other.first:
            break
        while first < other.end:
            first += length
    return IdRange(first, length) if first + length <= min(pool.end, _NO_ID) else None


def options(found: IdRange) -> Json:
    """CRI UserNamespace."""
    mapping: Json = {"host_id": found.first, "container_id": 0, "length": found.length}
    return {"mode": "POD", "uids": [mapping], "gids": [mapping]}


def text_of(found: IdRange) -> str:
    """The file that remembers it, as upstream's kubelet writes and reads it."""
    mapping = {"hostId": found.first, "containerId": 0, "length": found.length}
    return compact({"uidMappings": [mapping], "gidMappings": [mapping]})


def range_in(text: str) -> IdRange:
    """What such a file says. Raises Invalid for what no kubelet writes."""
    try:
        content = object_or_empty(decode(text))
    except json.JSONDecodeError as error:
        raise Invalid(f"is not JSON: {error}") from error
    users, groups = (objects_in(content.get(name)) for name in ("uidMappings", "gidMappings"))
    if len(users) != 1 or users != groups:
        raise Invalid("must have one mapping, the same for users and groups")
    first, inside, length = (users[0].get(name) for name in ("hostId", "containerId", "length"))
    if type(first) is not int or type(length) is not int or type(inside) is not int or inside != 0:
        raise Invalid("must map numbers to 0 and the IDs behind it")
    if first < UNIT or length < UNIT or first % UNIT or length % UNIT or first + length > _NO_ID:
        raise Invalid(f"maps {length} IDs from {first}, which no pod can have")
    return IdRange(first, length)


def _no_pool(message: str) -> Invalid:
    return Invalid(
        message,
        obj="IDs for the users of pods",
        step="user namespace",
        action=f"Correct the lines of user {USER} in /etc/subuid and /etc/subgid (without that user any IDs are "
        "given), or userNamespaces.idsPerPod and maxPods.",
    )
