"""Pods, containers and statuses for all tests, as the API server would have defaulted them.

    pod(container("main"), container("side", tty=True), meta={"name": "web"}, restartPolicy="Never")

is what the agent sees of a pod bound to its node; pod_json() is the same as JSON, as the API gives or takes it. Tests
that need a pod in a real cluster create manifest("web", web(), nodeName="node1"), which ends fast when deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.common.model.pods import Pod
from nodelib.json_values import Json

AGNHOST = "registry.k8s.io/e2e-test-images/agnhost:2.66.1"
BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2"


def container(name: str = "main", *, script: str = "", **fields: Any) -> Json:
    """container("main", script="sleep 9", tty=True): busybox; a shell that ends at once on SIGTERM runs the script."""
    made: Json = {"name": name}
    if "image" not in fields:
        made |= {"image": BUSYBOX, "imagePullPolicy": "IfNotPresent"}
    made |= {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
    if script:
        made["command"] = ["sh", "-c", f"trap 'exit 0' TERM\n{script}"]
    return {**made, **fields}


def user_of(*volumes: str, name: str = "main", **fields: Any) -> Json:
    """user_of("data", "keys"): a container that mounts these volumes below /mnt; nobody mounts a volume without one."""
    return container(name, volumeMounts=[{"name": one, "mountPath": f"/mnt/{one}"} for one in volumes], **fields)


def sleeper(name: str = "main", **fields: Any) -> Json:
    """sleeper("main"): busybox that does nothing for an hour."""
    return container(name, script="sleep 3600 & wait", **fields)


def web(name: str = "web", port: int = 8080, *, ready: bool = True, **fields: Any) -> Json:
    """web("web", 8080): agnhost's netexec with /hostname, /clientip, /shutdown, and UDP on the next port."""
    args = ["netexec", f"--http-port={port}", f"--udp-port={port + 1}"]
    probe = {"httpGet": {"path": "/hostname", "port": port}, "periodSeconds": 1}
    made = container(name, image=AGNHOST, args=args, ports=[{"containerPort": port}], **fields)
    return {**made, "readinessProbe": probe} if ready else made


def pod_json(
    name: str, *containers: Json, meta: Mapping[str, Any] | None = None, status: Json | None = None, **spec: Any
) -> Json:
    """pod_json("web", container(), meta={"uid": "u1"}, status={"phase": "Running"}, nodeName="n1")"""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(meta or {})},
        "spec": {"containers": list(containers) or [container()], **spec},
        "status": status or {},
    }


def pod(
    *containers: Json, meta: Json | None = None, status: Json | None = None, source: str = "api", **spec: Any
) -> Pod:
    """pod(container("main"), meta={"uid": "u2"}, hostNetwork=True): shop/web on n1 unless `meta` says otherwise."""
    metadata = {"name": "web", "namespace": "shop", "uid": "0b5c5f5e-1", **(meta or {})}
    defaults = {
        "enableServiceLinks": True,
        "dnsPolicy": "ClusterFirst",
        "nodeName": "n1",
        "serviceAccountName": "default",
    }
    name = metadata.pop("name")
    return Pod(pod_json(name, *containers, meta=metadata, status=status, **{**defaults, **spec}), source)


def manifest(name: str, *containers: Json, labels: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """manifest("web", web(), nodeName="node1"): for a real cluster, with a short grace period; sleeps by default."""
    made = pod_json(
        name,
        *(containers or (sleeper(),)),
        meta={"labels": dict(labels or {"app": name})},
        **{"terminationGracePeriodSeconds": 1, **spec},
    )
    del made["status"]
    return made


def container_status(name: str = "main", state: Json | None = None, **fields: Any) -> Json:
    """container_status("main", {"waiting": {"reason": "ErrImagePull"}}, restartCount=2): running by default."""
    return {"name": name, "state": {"running": {}} if state is None else state, **fields}
