"""Image pull secrets: the credentials that a pod itself names (spec.imagePullSecrets)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from agent.common.model.pods import Pod
from agent.common.work.namespace_threads import NamespaceThreads
from agent.common.work.pod_warnings import PodWarnings
from agent.images.model.pulls import NOT_FOUND, PullCredential, UnreadSecret
from agent.images.plan import keyring
from nodelib.errors import NodewrightError
from nodelib.json_values import Json

_MOST = 100  # pull secrets of a pod that are read
# Registries in all of them together. A Secret has room for 100,000, and each is compared with the image at every pull.
_MOST_REGISTRIES = 5000


class SecretReader(Protocol):
    """Reads Secrets for pods (volumes/work/pod_objects.py). Raises NodewrightError."""

    async def secret(self, pod: Pod, name: str) -> Json | None:
        """The Secret in the pod's namespace; None when it does not exist."""
        ...


class UnreadSecrets:
    """Pull secrets of which nothing came when they were read last, by pod: what `why` names beside a failed pull."""

    def __init__(self) -> None:
        self._by_pod: dict[str, tuple[UnreadSecret, ...]] = {}

    def of(self, uid: str) -> tuple[UnreadSecret, ...]:
        return self._by_pod.get(uid, ())

    def note(self, pod: Pod, unread: tuple[UnreadSecret, ...]) -> None:
        """Instead of what was noted of the pod before."""
        if unread:
            self._by_pod[pod.uid] = unread
        else:
            self._by_pod.pop(pod.uid, None)

    def drop_pod(self, uid: str) -> None:
        self._by_pod.pop(uid, None)


class PullSecrets:
    """Reads a pod's pull secrets and picks the credentials that match an image. `unread`: told of all others."""

    def __init__(self, secrets: SecretReader, warnings: PodWarnings, unread: UnreadSecrets) -> None:
        self._secrets, self._warnings, self._unread = secrets, warnings, unread
        self._threads = NamespaceThreads()

    async def pull_auth(self, pod: Pod, image: str) -> list[PullCredential]:
        """Credentials for `image`, best match first. A missing or malformed secret causes a warning and is left out."""
        secrets: dict[str, Json] = {}
        names = dict.fromkeys(ref["name"] for ref in pod.spec.get("imagePullSecrets") or [] if ref.get("name"))
        if len(names) > _MOST:
            message = f"The pod names {len(names)} image pull secrets; only the first {_MOST} are used."
            self._warnings.warn_once(pod, "FailedToRetrieveImagePullSecret", message)
        problems: list[tuple[str, str]] = []
        for name in list(names)[:_MOST]:
            try:
                found = await self._secrets.secret(pod, name)
            except NodewrightError as error:
                problems.append((name, error.message))
                continue
            if found is None:
                problems.append((name, NOT_FOUND))
            else:
                secrets[name] = found
        matching, more = await self._threads.run(pod.namespace, _matching, image, secrets) if secrets else ([], [])
        self._unread.note(pod, tuple(UnreadSecret(*one) for one in (*problems, *more)))
        for name, problem in (*problems, *more):
            message = f"Unable to retrieve some image pull secrets ({name}: {problem}); the pull may not succeed."
            self._warnings.warn_once(pod, "FailedToRetrieveImagePullSecret", message)
        return matching


def _matching(image: str, secrets: Mapping[str, Json]) -> tuple[list[PullCredential], list[tuple[str, str]]]:
    """The credentials that match the image, and (name, problem) of Secrets that are not used, or not all of them."""
    configs: list[dict[str, PullCredential]] = []
    problems: list[tuple[str, str]] = []
    room = _MOST_REGISTRIES
    for name, secret in secrets.items():
        try:
            found, left_out = keyring.of_secret(secret, room)
        except NodewrightError as error:
            problems.append((name, error.message))
            continue
        if left_out:
            problems.append((name, f"{left_out} registries are left out, {_MOST_REGISTRIES} are the most of one pod"))
        configs.append(found)
        room -= len(found)
    return keyring.match(image, configs), problems
