"""Image pull secrets: the credentials that a pod itself names (spec.imagePullSecrets)."""

from __future__ import annotations

from typing import Protocol

from agent.common.model.pods import Pod
from agent.common.work.pod_warnings import PodWarnings
from agent.images.model.pulls import PullCredential
from agent.images.plan import keyring
from nodelib.errors import NodewrightError
from nodelib.json_values import Json

_MOST = 100  # pull secrets of a pod that are read


class SecretReader(Protocol):
    """Reads Secrets for pods (volumes/work/pod_objects.py). Raises NodewrightError."""

    async def secret(self, pod: Pod, name: str) -> Json | None:
        """The Secret in the pod's namespace; None when it does not exist."""
        ...


class PullSecrets:
    """Reads a pod's pull secrets and picks the credentials that match an image."""

    def __init__(self, secrets: SecretReader, warnings: PodWarnings) -> None:
        self._secrets, self._warnings = secrets, warnings

    async def pull_auth(self, pod: Pod, image: str) -> list[PullCredential]:
        """Credentials for `image`, best match first. A missing or malformed secret causes a warning and is left out."""
        configs: list[dict[str, PullCredential]] = []
        names = dict.fromkeys(ref["name"] for ref in pod.spec.get("imagePullSecrets") or [] if ref.get("name"))
        if len(names) > _MOST:
            message = f"The pod names {len(names)} image pull secrets; only the first {_MOST} are used."
            self._warnings.warn_once(pod, "FailedToRetrieveImagePullSecret", message)
        for name in list(names)[:_MOST]:
            problem = "not found"
            try:
                found = await self._secrets.secret(pod, name)
                if found is not None:
                    configs.append(keyring.of_secret(found))
                    continue
            except NodewrightError as error:
                problem = error.message
            message = f"Unable to retrieve some image pull secrets ({name}: {problem}); the pull may not succeed."
            self._warnings.warn_once(pod, "FailedToRetrieveImagePullSecret", message)
        return keyring.match(image, configs)
