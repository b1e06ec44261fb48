"""What the daemon watches. Of each object it keeps only what the reflector needs: a cluster may have 100,000 Pods."""

from __future__ import annotations

from collections.abc import Callable

from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector, then_trimmed

OnChange = Callable[[str, Json], None]

POLICIES = "/apis/networking.k8s.io/v1/networkpolicies"
PODS = "/api/v1/pods"
NAMESPACES = "/api/v1/namespaces"


class Watches:
    """NetworkPolicies, Pods and Namespaces of the whole cluster."""

    def __init__(self, client: KubeClient, *, on_policy: OnChange, on_pod: OnChange, on_namespace: OnChange) -> None:
        handlers = {NAMESPACES: on_namespace, PODS: on_pod, POLICIES: on_policy}
        self.all = tuple(
            Reflector(client, path, name=path.rpartition("/")[2], on_change=then_trimmed(handle))
            for path, handle in handlers.items()
        )

    async def synced(self) -> None:
        """Wait until each has been listed once."""
        for one in self.all:
            await one.synced.wait()

    @property
    def last_error(self) -> str:
        """Why there are no news, "" if all is well."""
        return "; ".join(one.last_error for one in self.all if one.last_error)
