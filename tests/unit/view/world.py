"""The page on a cluster that an API server in memory plays: two nodes, pods in several states, Services."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from cli.commands.view.answers import ClusterAnswers
from cli.why.wording import Wording
from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import pod_json
from tests.builders.services import endpoint, endpoint_slice, node, service
from tests.fakes.apiserver import FakeApiServer
from view.app import serve
from view.model.network import Enforced, Hop, Leg, Link, Sysctl, Traced, Way, Wired, WiredRoute
from view.model.nodes import Daemon, DiskHolders, Evicted, Image, ImageDisk, NodeWork, PodDisk, Threshold
from view.model.objects import Question, Stores
from view.model.pods import Cost, PodRecord, Pull, Step
from view.ports import Refusals

MADE = "2026-11-23T20:00:00Z"
SCRIPT = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
# Expressions for a Browser; a row is found by its key.
LIVE = "document.querySelector('#state').textContent === 'live'"
ROW = 'document.querySelector(`tr[data-key="${arguments[0]}"]`)'
TEXT = f"{ROW}?.innerText ?? ''"
_PLURALS = {"NetworkPolicy": "networkpolicies", "ClusterNetworkPolicy": "clusternetworkpolicies"}
_VERSIONS = {
    "NetworkPolicy": "networking.k8s.io/v1",
    "ClusterNetworkPolicy": "policy.networking.k8s.io/v1alpha2",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
}
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/([\w-]+)/")


class Answers(ClusterAnswers):
    """As on a machine without nodes, but `works` has what nodes answer, by name, and so `wires`;
    `walk` is every packet's, and `enforced` every policy's."""

    def __init__(self, client: KubeClient) -> None:
        super().__init__(None, client, "", Wording())
        self.works: dict[str, NodeWork] = {}
        self.walk: Traced | None = None
        self.wires: dict[str, Wired] = {}
        self.enforced: Enforced | None = None
        self.uses, self.began = False, time.time()
        self.taker: Refusals | None = None

    async def node(self, name: str) -> NodeWork:
        return self.works.get(name) or await super().node(name)

    async def costs(self, pod: Json) -> tuple[Cost, ...]:
        """A container that takes half a core and is throttled a quarter of the time, by the clock."""
        if not self.uses:
            return await super().costs(pod)
        now = time.time() - self.began
        used = {"cpu_seconds": now / 2, "throttled_seconds": now / 4, "memory_working_set": 64.0 * (1 << 20)}
        probed = {"runs": now, "mean_seconds": 0.004, "worst_seconds": 0.03}
        return (
            Cost("container main", "12 s of CPU", used, f"Raise its limit. {SCRIPT}"),
            Cost("readinessProbe of main", "httpGet every 1 s", probed),
        )

    async def wired(self, node: str, stores: Stores) -> Wired:
        return self.wires.get(node) or await super().wired(node, stores)

    async def policy(self, policy: Json, stores: Stores) -> Enforced:
        return self.enforced or await super().policy(policy, stores)

    async def trace(self, asked: Question, stores: Stores | None = None) -> Traced:
        return self.walk or await super().trace(asked, stores)

    async def refused(self, taker: Refusals) -> None:
        self.taker = taker
        await super().refused(taker)


@dataclass(frozen=True, slots=True)
class Page:
    """The page's address, and the API server behind it."""

    url: str
    api: FakeApiServer
    answers: Answers

    @property
    def port(self) -> int:
        return int(_match(self.url)[1])

    @property
    def token(self) -> str:
        return _match(self.url)[2]


def _match(url: str) -> re.Match[str]:
    found = _ADDRESS.fullmatch(url)
    assert found is not None, url
    return found


@contextlib.asynccontextmanager
async def page() -> AsyncIterator[Page]:
    """The page as `./nodewright view --kubeconfig` serves it, on a cluster without anything in it."""
    async with FakeApiServer() as api, served(api) as found:
        yield found


@contextlib.asynccontextmanager
async def served(api: FakeApiServer, port: int = 0) -> AsyncIterator[Page]:
    access, opened = ClusterAccess(api.url), asyncio.get_running_loop().create_future()
    async with KubeClient(access, user_agent="test") as client:
        answers = Answers(client)
        task = asyncio.create_task(serve(access, answers, "lab", port=port, ready=opened.set_result))
        try:
            await asyncio.wait({task, opened}, return_when=asyncio.FIRST_COMPLETED)
            yield Page(opened.result() if opened.done() else task.result() or "", api, answers)
        finally:
            await cancel_and_wait(task)


def running(name: str, address: str, place: str, **meta: object) -> Json:
    """A pod of namespace shop that runs and is ready."""
    return pod_json(
        name,
        meta={"namespace": "shop", "creationTimestamp": MADE, "uid": f"uid-{name}", **meta},
        status={
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": f"2026-11-23T20:00:0{at}Z"}
                for kind, at in (
                    ("PodScheduled", 0),
                    ("PodReadyToStartContainers", 1),
                    ("Initialized", 1),
                    ("ContainersReady", 3),
                    ("Ready", 3),
                )
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": "2026-11-23T20:00:02Z"}},
                }
            ],
        },
        nodeName=place,
    )


def waiting(name: str, place: str) -> Json:
    """A pod of namespace shop whose image cannot be pulled."""
    found = running(name, "", place)
    found["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": MADE}],
        "containerStatuses": [
            {
                "name": "main",
                "ready": False,
                "restartCount": 0,
                "state": {
                    "waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling nosuch.example/web:1"}
                },
            }
        ],
    }
    return found


def ready_node(name: str, address: str, cidr: str) -> Json:
    found = node(name, address=address, cidr=cidr)
    found["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": MADE}
    found["spec"] |= {"podCIDRs": [cidr]}
    found["status"] |= {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": "v1.37.1"},
    }
    return found


def shop_service(name: str, address: str) -> Json:
    found = service(name, address, namespace="shop", selector={"app": name}, clusterIPs=[address])
    found["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": MADE}
    return found


def shop_slice(name: str, *pods: tuple[str, str, bool]) -> Json:
    """`pods`: name, address, and whether it is ready."""
    entries = [
        {**endpoint(address, ready=ready), "targetRef": {"kind": "Pod", "name": pod, "namespace": "shop"}}
        for pod, address, ready in pods
    ]
    found = endpoint_slice(name, entries, namespace="shop")
    found["metadata"]["uid"] = f"uid-slice-{name}"
    return found


async def put(api: FakeApiServer, obj: Json) -> None:
    version = obj.get("apiVersion", _VERSIONS.get(obj["kind"], "v1"))
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    plural = _PLURALS.get(obj["kind"], f"{obj['kind'].lower()}s")
    await api.put(f"{root}/{plural}/{obj['metadata']['name']}", obj)


def cluster_policies_defined() -> Json:
    """Their CRD, as a cluster of `up` has it."""
    return {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusternetworkpolicies.policy.networking.k8s.io"},
        "spec": {"versions": [{"name": "v1alpha2", "served": True}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    }


def namespace(name: str, **labels: str) -> Json:
    return {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}


async def shop(api: FakeApiServer) -> None:
    """Two nodes, three pods, two Services."""
    labels = {"app": "web", "note": SCRIPT}
    for one in (
        ready_node("node1", "192.0.2.11", "10.0.1.0/24"),
        ready_node("node2", "192.0.2.12", "10.0.2.0/24"),
        running("web-1", "10.0.1.2", "node1", labels=labels, annotations={"note": SCRIPT}),
        running("web-2", "10.0.2.2", "node2", labels=labels),
        waiting("late", "node2"),
        shop_service("web", "10.9.0.7"),
        shop_service("db", "10.9.0.8"),
        shop_slice("web", ("web-1", "10.0.1.2", True), ("web-2", "10.0.2.2", False)),
    ):
        await put(api, one)


def at_work(now: float) -> NodeWork:
    """A node with three starts, the last of which goes on, a pull, little memory left and a daemon that ended once."""

    def lane(name: str, begin: float, ready: bool) -> PodRecord:
        steps = [
            Step(begin, "prepare", 0.05, "ok", kind="prepare"),
            Step(begin + 0.02, "image web", 0.2, "ok", kind="image"),
            Step(begin + 0.1, "sandbox", 0.3, "ok", kind="sandbox"),
            Step(begin + 0.4, "start web", 0.2 if ready else None, "ok", kind="start"),
        ]
        done = [Step(begin + 0.7, "ready", 0.0, "ok", kind="ready")] if ready else []
        return PodRecord(("shop", name), (*steps, *done))

    pulling = PodRecord(("shop", "late"), (), (Pull("image of container main", "3 of 9 MiB, 1 MiB/s", 0.33, now - 4),))
    images = (Image("registry.example/web:1", 300 << 20, "container shop/web-1"), Image(SCRIPT, 5 << 20, ""))
    mib = 1 << 20
    return NodeWork(
        (lane("web-1", now - 3, True), lane("web-2", now - 2.8, True), lane("late", now - 1, False), pulling),
        ImageDisk(1000 * mib, 300 * mib, 85, 80, images, ("2 images", "70 % of the file system is used")),
        DiskHolders(
            700 * mib,
            (
                PodDisk(("shop", "web-2"), 600 * mib, (("volume scratch", 590 * mib), (f"log of {SCRIPT}", 10 * mib))),
                PodDisk(("shop", "web-1"), 100 * mib, (("log of container main", 100 * mib),)),
            ),
        ),
        (
            Threshold("memory.available", 90 * mib, 1000 * mib, 100 * mib, 0.0, now - 8),
            Threshold("nodefs.available", 700 * mib, 1000 * mib, 100 * mib, 0.0, 0.0),
        ),
        (Evicted("shop/gone", now - 6, f"The node was low on resource: memory. {SCRIPT}"),),
        (Daemon("agent", True, 7, 500.0, 2, "signal 9"), Daemon("proxy", False, 0, 0.0, 1, "exit code 1")),
    )


def walked(packets: int) -> Traced:
    """A walk over one node, whose rule has met so many packets."""
    mine = ("networkpolicy/shop/deny",)
    hops = (
        Hop("nat", "KUBE-SERVICES", "-d 10.9.0.7/32 -j KUBE-SVC-A", "it is the cluster IP", packets, True, True, mine),
        Hop("filter", "FORWARD", "-j ACCEPT", "", None, False, True),
    )
    leg = Leg("node1", "nw0", "10.0.1.2", "10.9.0.7:80", hops, "by eth0", "sent on")
    return Traced(("ARRIVES",), "10.0.1.2", "10.9.0.7:80/tcp", (Way(True, "arrives", (leg,)),))


def refused_walk() -> Traced:
    """A walk over two nodes, ended on the second by a ClusterNetworkPolicy whose rule has a strange name."""
    meaning = f"dropped: ClusterNetworkPolicy no-db denies it (Admin tier, ingress[0] {SCRIPT})"
    drop = Hop("ip policy", "deny-ingress-1", "drop", meaning, 7, True, True, ("clusternetworkpolicy//no-db",))
    first = walked(5).ways[0].legs[0]
    second = Leg("node2", "eth0", "10.0.1.2 (pod shop/web-1)", "10.0.2.2:80", (drop,), "", "DROPPED on node2", True)
    why = ("DROPPED", f"  {meaning}", "  do: `policy explain shop/db` lists what is allowed.")
    return Traced(why, "10.0.1.2", "10.0.2.2:80/tcp", (Way(False, "DROPPED", (first, second)),))


def wired() -> Wired:
    """node1 with its bridge, its uplink, and the link of the pod web-1."""

    def link(name: str, kind: str, master: str = "", behind: str = "", *addresses: str) -> Link:
        return Link(name, kind, master, addresses, "UP", 1500, behind, 1200, 3400, 2, f'{{"ifname": "{name}"}}')

    links = (
        link("eth0", "veth", "", "", "192.0.2.11/24"),
        link("nw0", "bridge", "", "", "10.0.1.1/24"),
        link("veth7", "veth", "nw0", "pod/shop/web-1"),
    )
    routes = (
        WiredRoute("default", "192.0.2.1", "eth0", "", "", ""),
        WiredRoute("10.0.2.0/24", "192.0.2.12", "eth0", "", "pods of node2", "node2"),
        WiredRoute("10.0.0.0/16", "", "", "unreachable", "", ""),
    )
    return Wired(links, routes, (Sysctl("net.ipv4.ip_forward", "1", "packets of pods are forwarded"),))
