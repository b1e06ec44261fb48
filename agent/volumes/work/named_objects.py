"""How many objects pods name: each is read, kept and followed, and whoever writes a pod may name any number."""

from __future__ import annotations

from agent.common.model.pods import Pod
from agent.volumes.model.sources import MOST_OBJECTS, MOST_OBJECTS_OF_NAMESPACE, MOST_TOKENS, ObjectRef, TokenRequest
from nodelib.errors import Permanent, Temporary


class NamedObjects:
    """`most`: of one pod, and of the pods of one namespace on this node."""

    def __init__(self, most: tuple[int, int] = (MOST_OBJECTS, MOST_OBJECTS_OF_NAMESPACE)) -> None:
        self._of_pod, self._of_namespace = most
        self._pods: dict[str, set[ObjectRef]] = {}
        self._tokens: dict[str, set[TokenRequest]] = {}
        self._users: dict[str, dict[ObjectRef, set[str]]] = {}  # by namespace: the pods that name each object
        self._namespaces: dict[str, str] = {}  # by pod

    def note(self, pod: Pod, ref: ObjectRef) -> None:
        """The pod names this object. Raises Permanent and Temporary when that is one too many."""
        known = self._pods.get(pod.uid, set())
        if ref in known:
            return
        if len(known) >= self._of_pod:
            raise _too_many(pod, f"{self._of_pod} ConfigMaps and Secrets")
        users = self._users.get(pod.namespace, {})
        if ref not in users and len(users) >= self._of_namespace:
            raise Temporary(
                f"the pods of namespace {pod.namespace} name more than {self._of_namespace} ConfigMaps and Secrets"
                " on this node",
                obj=f"pod {pod.full_name}",
                action="Run fewer of them on one node, or put the data into fewer objects.",
                retry_after=30,
            )
        self._pods.setdefault(pod.uid, set()).add(ref)
        self._namespaces[pod.uid] = pod.namespace
        self._users.setdefault(pod.namespace, {}).setdefault(ref, set()).add(pod.uid)

    def note_token(self, pod: Pod, request: TokenRequest) -> None:
        """The pod asks for this token. Raises Permanent when it is one too many."""
        known = self._tokens.setdefault(pod.uid, set())
        if request not in known and len(known) >= MOST_TOKENS:
            raise _too_many(pod, f"{MOST_TOKENS} tokens")
        known.add(request)

    def drop_pod(self, uid: str) -> None:
        """The pod names nothing any more."""
        self._tokens.pop(uid, None)
        namespace = self._namespaces.pop(uid, "")
        users = self._users.get(namespace, {})
        for ref in self._pods.pop(uid, set()):
            users[ref].discard(uid)
            if not users[ref]:
                del users[ref]
        if not users:
            self._users.pop(namespace, None)


def _too_many(pod: Pod, what: str) -> Permanent:
    return Permanent(
        f"the pod names more than {what}",
        obj=f"pod {pod.full_name}",
        action="Name fewer: put the data into fewer objects, an image or a claim.",
    )
