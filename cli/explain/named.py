"""What the words FROM and TO of `trace` name: "web-0", "shop/web-0", "deploy/web", "svc/web", "node/node1". Pure."""

from __future__ import annotations

from cli.explain.dns_names import DnsName
from cli.explain.facts import Facts, alive, key
from nodelib.json_values import Json

POD, SERVICE, NODE = "Pod", "Service", "Node"
_KINDS = {
    **dict.fromkeys(("po", "pod", "pods"), POD),
    **dict.fromkeys(("svc", "service", "services"), SERVICE),
    **dict.fromkeys(("no", "node", "nodes"), NODE),
    **dict.fromkeys(("deploy", "deployment", "deployments"), "Deployment"),
    **dict.fromkeys(("rs", "replicaset", "replicasets"), "ReplicaSet"),
    **dict.fromkeys(("sts", "statefulset", "statefulsets"), "StatefulSet"),
    **dict.fromkeys(("ds", "daemonset", "daemonsets"), "DaemonSet"),
    **dict.fromkeys(("job", "jobs"), "Job"),
}
_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job", "ReplicaSet")


def kind_of(text: str) -> tuple[str, str]:
    """("Pod", "web-0") of "pod/web-0", ("Pod", "shop/web-0") of "shop/pod/web-0"; without a kind it is ""."""
    space, *after = text.split("/")
    if len(after) == 2 and space.lower() not in _KINDS and (kind := _KINDS.get(after[0].lower(), "")):
        return kind, f"{space}/{after[1]}"
    word, slash, rest = text.partition("/")
    kind = _KINDS.get(word.lower(), "") if slash else ""
    return (kind, rest) if kind else ("", text)


def pod_named(kind: str, text: str, facts: Facts, namespace: str) -> Json | None:
    """The pod of that name, or the first living one of a workload such as a Deployment."""
    space, name = split_name(text, namespace)
    if kind in ("", POD):
        return facts.pod(space, name)
    return next((pod for pod in facts.pods if key(pod)[0] == space and alive(pod) and owned(pod, kind, name)), None)


def workload_named(text: str, facts: Facts, namespace: str) -> str:
    """A workload of that name with a living pod, as "shop/deployment/web"; "" for none."""
    space, name = split_name(text, namespace)
    pods = [pod for pod in facts.pods if key(pod)[0] == space and alive(pod)]
    found = (kind for kind in _WORKLOADS if any(owned(pod, kind, name) for pod in pods))
    return next((f"{space}/{kind.lower()}/{name}" for kind in found), "")


def workload_elsewhere(kind: str, name: str, facts: Facts) -> str:
    """A workload of that kind and name in any namespace, with a living pod, as "shop/deployment/web"; "" for none."""
    found = (pod for pod in facts.pods if kind in _WORKLOADS and alive(pod) and owned(pod, kind, name))
    return next((f"{key(pod)[0]}/{kind.lower()}/{name}" for pod in found), "")


def owned(pod: Json, kind: str, name: str) -> bool:
    """Whether it is a pod of the workload of that kind ("Deployment") and name, which is in its namespace."""
    meta = pod["metadata"]
    if kind == "Deployment":
        kind, name = "ReplicaSet", f"{name}-{(meta.get('labels') or {}).get('pod-template-hash', '')}"
    return any(one.get("kind") == kind and one.get("name") == name for one in meta.get("ownerReferences") or [])


def address_of_host(named: DnsName, facts: Facts) -> str:
    """The address of one endpoint of a Service by its host name, as DNS has it."""
    service = facts.service(named.namespace, named.service)
    for one in facts.slices_of(service) if service is not None and named.host else []:
        for entry in one.get("endpoints") or []:
            if entry.get("hostname") == named.host and entry.get("addresses"):
                return str(entry["addresses"][0])
    return ""


def split_name(text: str, namespace: str) -> tuple[str, str]:
    before, slash, after = text.partition("/")
    return (before, after) if slash else (namespace, text)
