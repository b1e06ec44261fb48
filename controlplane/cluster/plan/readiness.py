"""What a node or a pod still waits for, read from its API object. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.cluster.model import RELEASE, Options
from controlplane.config.model import Taint
from nodelib.text import one_line
from nodelib.version import skew

_KEEPS_PODS_AWAY = ("NoSchedule", "NoExecute")
_CORDON = "node.kubernetes.io/unschedulable"
_OF_THE_CLUSTER = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")  # set and removed by controllers
_CRI_PLUGIN = "io.containerd.grpc.v1.cri"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod in brief."""

    name: str
    namespace: str
    node: str
    address: str
    ready: bool
    phase: str
    reason: str
    restarts: int
    deleting: bool


@dataclass(frozen=True, slots=True)
class NodeState:
    """`word`: the state in a word or two; `waits_for`: why no pods can be scheduled to the node, "" if they can."""

    word: str
    waits_for: str = ""
    taints: tuple[Taint, ...] = ()  # which nobody asked for when the cluster was described


def node_state(node: dict[str, Any] | None, boot: str = "", given: Iterable[Taint] = ()) -> NodeState:
    """What the Node says.

    `boot`: when it was started, as RFC 3339 in UTC; `given`: the taints that it is meant to have.
    """
    if node is None:
        return NodeState("not registered", "not registered")
    ready = _ready_condition(node)
    if not is_ready(node):
        return NodeState("not Ready", f"not Ready: {ready.get('message') or 'no condition yet'}")
    if str(ready.get("lastHeartbeatTime") or "9") < boot:
        return NodeState("not heard of", "nothing was heard from its agent since it was started")
    if not node["spec"].get("podCIDR"):
        return NodeState("no podCIDR", "no podCIDR yet")
    taints = _other_taints(node, given)
    if not taints:
        return NodeState("Ready")
    if {one.key for one in taints} == {_CORDON}:
        return NodeState("cordoned", "cordoned: it takes no new pods until it is uncordoned", taints)
    return NodeState("tainted", f"tainted {', '.join(one.key for one in taints)}", taints)


def is_ready(node: dict[str, Any] | None) -> bool:
    """Whether it is what kubectl calls Ready: a cordoned node is, though it takes no new pods."""
    return _ready_condition(node or {}).get("status") == "True"


def _ready_condition(node: dict[str, Any]) -> dict[str, Any]:
    conditions = node.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "Ready"), {})


def start_waits_for(node: dict[str, Any] | None, boot: str = "", given: Iterable[Taint] = ()) -> str:
    """Why a node that was started is not up yet, "" if it is.

    Unlike node_state() it leaves aside what only a person takes away again: a cordon, and taints of their own.
    """
    state = node_state(node, boot, given)
    passes = any(one.key != _CORDON and one.key.startswith(_OF_THE_CLUSTER) for one in state.taints)
    return state.waits_for if passes or not state.taints else ""


def closed_nodes(nodes: Mapping[str, dict[str, Any]], given: Mapping[str, Iterable[Taint]]) -> str:
    """Which of the nodes take no new pods because a person wants it so, as `node2 cordoned`; "" for none."""
    states = {name: node_state(nodes.get(name), given=taints) for name, taints in given.items()}
    return ", ".join(f"{name} {state.waits_for.partition(':')[0]}" for name, state in states.items() if state.taints)


def _other_taints(node: dict[str, Any], given: Iterable[Taint]) -> tuple[Taint, ...]:
    meant = {(one.key, one.effect) for one in given}
    found = (Taint(one["key"], one.get("effect", "")) for one in node["spec"].get("taints") or [])
    return tuple(one for one in found if one.effect in _KEEPS_PODS_AWAY and (one.key, one.effect) not in meant)


def runtime_problem(log: str) -> str:
    """Why a containerd that answers serves no pods, from the end of its log; "" if it does.

    It goes on without a plugin that fails, and never tries that one again.
    """
    started = log.rpartition('msg="starting containerd"')[2]
    lines = (line for line in started.splitlines() if 'msg="failed to load plugin"' in line)
    found = next((line for line in lines if f"id={_CRI_PLUGIN} " in f"{line} "), "")
    if not found:
        return ""
    cause = one_line(found.partition('error="')[2].partition('" id=')[0] or "see its log", 300)
    fix = ": too little of fs.inotify.max_user_instances is left, `./nodewright doctor` says more"
    return f"containerd runs without its CRI plugin ({cause}){fix if 'inotify' in cause else ''}"


_EXPECTED = {"Ready": "True", "ServingCertificate": "True"}  # all others: False


def unexpected_conditions(node: dict[str, Any] | None) -> str:
    """Conditions other than Ready and ServingCertificate that are not as they should be, "" if none."""
    conditions = ((node or {}).get("status") or {}).get("conditions") or []
    odd = [one["type"] for one in conditions if one["type"] not in _EXPECTED and one.get("status") != "False"]
    return ", ".join(odd)


def node_versions(node: dict[str, Any] | None) -> dict[str, str]:
    info = ((node or {}).get("status") or {}).get("nodeInfo") or {}
    return {"version": str(info.get("kubeletVersion", "")), "runtime": str(info.get("containerRuntimeVersion", ""))}


def skews(kubelets: Iterable[str], server: str) -> tuple[str, ...]:
    """How these kubelets violate upstream's version skew policy with that API server; each version once."""
    return tuple(words for one in dict.fromkeys(kubelets) if (words := skew(one, server)))


def settings(options: Options) -> dict[str, str]:
    """The options of a cluster in the words of `up`; except for the first four, defaults are left out."""
    shown = {
        "proxy mode": options.proxy_mode,
        "IP family": options.ip_family,
        "uplink": "yes" if options.uplink else "no",
        "links": "routed" if options.routed else "one bridge",
    }
    foreign = options.network != "nodewright"  # it may enforce policies or not
    more = {
        "agent": options.agent if options.agent != "nodewright" else "",
        "proxy": options.proxy if options.proxy != "nodewright" else "",
        "network policies": "enforced" if options.enforces_policies else "" if foreign else "not enforced",
        "LoadBalancer addresses": "given" if options.gives_addresses else "",
        "volumes": "provided by the nodes" if options.provides_volumes else "",
        "by": "kubeadm" if options.kubeadm else "",
        "pod network": options.network if foreign else "",
        "addons": options.addons,
        "control plane": options.kubernetes if options.kubernetes != RELEASE else "",
    }
    return shown | {name: value for name, value in more.items() if value}


def serving_waits_for(node: dict[str, Any] | None) -> str:
    """What a kubelet's serving certificate waits for, from its Node; "" if nothing."""
    conditions = ((node or {}).get("status") or {}).get("conditions") or []
    found: dict[str, Any] = next((one for one in conditions if one["type"] == "ServingCertificate"), {})
    return str(found.get("message", "")) if found.get("status") == "False" else ""


@dataclass(frozen=True, slots=True)
class ProxyState:
    """`word`: the state in a word or two; `problem`: the end of a sentence about the proxy, "" if it is well.

    `synced`: when it last changed the rules, as RFC 3339; "" unknown, as of a proxy that is not ours.
    """

    word: str
    problem: str = ""
    synced: str = ""

    @property
    def text(self) -> str:
        return self.problem or f"{self.word} {self.synced}".rstrip()


def proxy_state(bodies: Sequence[str], error: str) -> ProxyState:
    """What a proxy's health check says."""
    if not bodies:
        if "HTTP/1" in error and " 503" in error:
            text = "is not healthy: its last change is not in the kernel yet (503); its log says why"
            return ProxyState("not healthy", text)
        if "HTTP/1" in error:
            return ProxyState("not healthy", "is not healthy: another answer came than a health check gives")
        if "refused" in error.lower():
            return ProxyState("down", "is down: nothing listens on its health port")
        return ProxyState("does not answer", f"does not answer: {error or 'no reason known'}")
    try:
        answer = json.loads(bodies[0])
    except (ValueError, RecursionError):
        return ProxyState("answers")
    if not isinstance(answer, dict):
        return ProxyState("answers")
    return ProxyState("synced", synced=str(answer.get("lastUpdated", "")))


def pod_facts(pod: dict[str, Any], boots: Mapping[str, str] | None = None) -> Pod:
    """The fields of a pod that `status` and waits need.

    `boots`: when each node was started, as RFC 3339 in UTC. A pod whose containers are older is not ready, whatever its
    status says: they ended with the node, and the agent has not said so yet.
    """
    status, metadata = pod.get("status", {}), pod["metadata"]
    conditions = {c["type"]: c for c in status.get("conditions", [])}
    ready = conditions.get("Ready", {}).get("status") == "True"
    initial = status.get("initContainerStatuses", [])
    containers = [*initial, *status.get("containerStatuses", [])]
    begun = (str(box["state"]["running"]["startedAt"]) for box in status.get("containerStatuses", []) if _runs(box))
    if min(begun, default="9") < (boots or {}).get(pod["spec"].get("nodeName", ""), ""):
        ready, conditions = False, {"Ready": {"message": "its node was started after it"}}
    return Pod(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        node=pod["spec"].get("nodeName", ""),
        address=status.get("podIP", ""),
        ready=ready,
        phase=status.get("phase", "Pending"),
        reason="" if ready else _reason(conditions, initial, containers),
        restarts=sum(int(c.get("restartCount", 0)) for c in containers),
        deleting="deletionTimestamp" in metadata,
    )


def _runs(box: dict[str, Any]) -> bool:
    return bool(box.get("state", {}).get("running", {}).get("startedAt"))


def _reason(conditions: dict[str, Any], initial: list[dict[str, Any]], containers: list[dict[str, Any]]) -> str:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', '')}: {scheduled.get('message', '')}"
    said = [words for box in containers if (words := _said_of(box))]
    running = [
        f"{box['name']} runs, and the others wait for it" for box in initial if _runs(box) and not box.get("started")
    ]
    # What waits for another container says less than what that one does.
    telling = [words for words in said if not words.endswith(" PodInitializing")]
    ready = str(conditions.get("Ready", {}).get("message", ""))
    return next(filter(None, (*telling, *running, *said, ready)), "no status yet")


def _said_of(box: dict[str, Any]) -> str:
    """What the state of a container says, "" when it is as it should be."""
    for kind in ("waiting", "terminated"):
        detail = box.get("state", {}).get(kind)
        if detail and detail.get("reason") != "Completed":
            code = f" (exit code {detail['exitCode']})" if detail.get("exitCode") else ""
            return f"{box['name']} {detail.get('reason', kind)}{code}: {detail.get('message', '')}".rstrip(": ")
    return ""


def pods_wait_for(pods: list[Pod], count: int) -> str:
    """Why there are fewer than `count` Ready pods, "" if there are enough."""
    living = [pod for pod in pods if not pod.deleting]
    ready = [pod for pod in living if pod.ready]
    if len(ready) >= count:
        return ""
    waiting = [f"{pod.name}: {pod.reason}" for pod in living if not pod.ready]
    return f"{len(ready)} of {count} pods ready" + (f" ({waiting[0]})" if waiting else "")
