"""The pods of this node in the API: status patches, deletions, mirror pods; and RuntimeClasses."""

from __future__ import annotations

from agent.common.model.pods import Pod
from nodelib.json_values import Json
from nodelib.kube.client import ApiError, KubeClient


class PodsApi:
    """agent.pods.ports.ApiPods."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def patch_status(self, pod: Pod, patch: Json) -> Json:
        return await self._client.patch(f"{_path(pod)}/status", patch, kind="strategic")

    async def delete(self, pod: Pod) -> None:
        body: Json = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.uid},
        }
        try:
            await self._client.delete(_path(pod), body)
        except ApiError as error:
            if not error.is_not_found and not error.is_conflict:
                raise

    async def create(self, body: Json) -> Json:
        """Create a mirror pod. Raises ApiError, ApiUnreachable."""
        return await self._client.post(f"/api/v1/namespaces/{body['metadata']['namespace']}/pods", body)

    async def runtime_handler(self, class_name: str) -> str:
        found = await self._client.get(f"/apis/node.k8s.io/v1/runtimeclasses/{class_name}")
        return str(found.get("handler", ""))


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
