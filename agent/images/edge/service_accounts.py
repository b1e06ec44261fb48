"""Service accounts of pods, and tokens of them for registries, from the API server."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from agent.common.model.pods import Pod
from agent.images.model.pulls import Account, AccountSource, AccountToken
from nodelib.errors import Temporary
from nodelib.json_values import object_or_empty
from nodelib.kube.client import KubeClient
from nodelib.kube.times import parse_rfc3339


class ServiceAccounts:
    """images/work/pull_credentials.py Accounts. `now`: seconds of the wall clock, which tokens are dated by."""

    def __init__(self, client: KubeClient, now: Callable[[], float]) -> None:
        self._client, self._now = client, now

    async def account(self, namespace: str, name: str) -> Account:
        """Raises ApiError, ApiUnreachable."""
        found = await self._client.get(_path(namespace, name))
        meta = object_or_empty(found.get("metadata"))
        annotations = object_or_empty(meta.get("annotations"))
        return Account(
            AccountSource(namespace, name, str(meta.get("uid") or "")),
            {str(key): str(value) for key, value in annotations.items()},
        )

    async def token(self, pod: Pod, account: Account, audience: str) -> AccountToken:
        """For this account and no later one of its name. Raises ApiError, ApiUnreachable, Temporary."""
        bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"uid": account.source.uid},
            "spec": {"audiences": [audience], "boundObjectRef": bound},
        }
        source = account.source
        answer = await self._client.post(f"{_path(source.namespace, source.name)}/token", body)
        status = object_or_empty(answer.get("status"))
        text = status.get("token")
        try:
            expires = parse_rfc3339(status.get("expirationTimestamp", ""))
        except ValueError:
            expires = 0.0
        if not isinstance(text, str) or not text:
            raise Temporary(
                "the API server's answer has no token",
                obj=f"pod {pod.full_name}",
                step=f"token of service account {source.namespace}/{source.name}",
            )
        return AccountToken(text, max(0.0, expires - self._now()))


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/serviceaccounts/{quote(name, safe='')}"
