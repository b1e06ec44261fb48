"""Small pods for tests, as the API server would have defaulted them."""

from __future__ import annotations

from typing import Any

from agent.common.model.pods import Pod
from nodelib.json_values import Json


def container(name: str = "main", **fields: Any) -> Json:
    return {
        "name": name,
        "image": "busybox",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        **fields,
    }


def pod(
    *containers: Json, meta: Json | None = None, status: Json | None = None, source: str = "api", **spec: Any
) -> Pod:
    metadata = {"name": "web", "namespace": "shop", "uid": "0b5c5f5e-1", **(meta or {})}
    defaults = {
        "enableServiceLinks": True,
        "dnsPolicy": "ClusterFirst",
        "nodeName": "n1",
        "serviceAccountName": "default",
    }
    body = {**defaults, "containers": list(containers) or [container()], **spec}
    return Pod({"metadata": metadata, "spec": body, "status": status or {}}, source)
