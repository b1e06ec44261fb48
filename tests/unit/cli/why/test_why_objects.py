"""`nodewright why` of what is not a pod: recorded objects of the API server, and what is said of each."""

from __future__ import annotations

from typing import Any

import pytest

from cli.commands import why
from cli.explain.listening import Listening, unknown
from cli.why import judge
from cli.why.model import KINDS, Explained, Facts
from cli.why.sources import Answers
from cli.why.targets import Target, meant, target
from controlplane.cluster.model import Cluster, Options
from controlplane.machine.model import Listener
from nodelib.errors import Invalid
from nodelib.json_values import Json

NOW = "2026-01-01T00:00:00Z"
LABELS = {"app": "web"}
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}


def thing(name: str = "web", *, owner: Json | None = None, status: Json | None = None, **spec: Any) -> Json:
    meta: Json = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "creationTimestamp": NOW, "labels": LABELS}
    if owner is not None:
        above = {"uid": owner["metadata"]["uid"], "name": owner["metadata"]["name"]}
        meta["ownerReferences"] = [{**above, "controller": True, "kind": owner.get("kind", "Deployment")}]
    return {"metadata": meta, "spec": spec, "status": status or {}}


def with_notes(obj: Json, notes: Json) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "annotations": notes}}


def cluster_wide(name: str, **more: Any) -> Json:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "annotations": more.pop("annotations", {})}, **more}


def condition(kind: str, status: str, reason: str, message: str = "") -> Json:
    one = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}
    return {"conditions": [one]}


def event(of: Json, reason: str, message: str, **more: Any) -> Json:
    about = {"uid": of["metadata"]["uid"]}
    made = {"metadata": {"creationTimestamp": NOW}, "involvedObject": about, "type": "Warning"}
    return {**made, "reason": reason, "message": message, "lastTimestamp": NOW, **more}


def running(name: str, *, owner: Json | None = None, ready: bool = True, **spec: Any) -> Json:
    status = {"phase": "Running", **condition("Ready", "True" if ready else "False", "x")}
    return thing(name, owner=owner, status=status, **{"nodeName": "n1", **spec})


def judged(kind: str, of: Json, **lists: list[Json]) -> Explained:
    """Of one object, with what else the API server has."""
    facts = Facts({**{name: tuple(found) for name, found in lists.items()}, kind: (*lists.get(kind, ()), of)})
    every = judge.objects(facts, ())
    (found,) = [one for one in every if (one.kind, one.found.uid) == (kind, of["metadata"].get("uid", ""))]
    return found


QUOTA = 'pods "web-x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3'
DEPLOYMENT = thing(replicas=2)
SET = {**thing("web-1", owner=DEPLOYMENT, replicas=1), "kind": "ReplicaSet"}
JOB = thing()
CHOSEN = {"volume.kubernetes.io/selected-node": "n1"}
LATE = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "example.com/disk"}
USER = running("web", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "web"}}])
UNPLACED = running("web", nodeName="", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "web"}}])
BALANCED: Json = {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]}
NODE = cluster_wide("n1", status={"addresses": [{"type": "InternalIP", "address": "10.9.0.1"}]})
SERVER = running("p")
SERVER["status"]["podIP"] = "10.0.0.2"
SLICE: Json = {
    "metadata": {"name": "web-x", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
    "ports": [{"port": 8080}],
    "endpoints": [{"addresses": ["10.0.0.2"], "conditions": {"ready": True}}],
}
ASLEEP = thing(replicas=0, template={"metadata": {"labels": {**LABELS, "tier": "front"}}})
BACKEND = {"service": {"name": "web", "port": {"number": 80}}}

# name: (kind, object, what else is there, reason, part of the error, part of the advice, whether the list has it)
CASES: dict[str, tuple[str, Json, dict[str, list[Json]], str, str, str, bool]] = {
    "quota": (
        "deployment",
        thing(replicas=1, status=condition("ReplicaFailure", "True", "FailedCreate", QUOTA)),
        {},
        "FailedCreate",
        "exceeded quota: small",
        "`kubectl describe quota small -n shop`",
        True,
    ),
    "quota of a ReplicaSet that a Deployment shows": (
        "replicaset",
        {
            **thing(
                "web-1", owner=DEPLOYMENT, replicas=1, status=condition("ReplicaFailure", "True", "FailedCreate", QUOTA)
            ),
        },
        {},
        "FailedCreate",
        "exceeded quota",
        "quota",
        False,
    ),
    "a StatefulSet's pod that is refused": (
        "statefulset",
        DEPLOYMENT,
        {"event": [event(DEPLOYMENT, "FailedCreate", "create Pod web-0 failed error: " + QUOTA)]},
        "FailedCreate",
        "exceeded quota: small",
        "describe quota small",
        True,
    ),
    "a service account that does not exist": (
        "deployment",
        thing(status=condition("ReplicaFailure", "True", "FailedCreate", 'serviceaccount "me" not found')),
        {},
        "FailedCreate",
        "not found",
        "`kubectl create serviceaccount me -n shop`",
        True,
    ),
    "a rollout that takes too long": (
        "deployment",
        thing(status=condition("Progressing", "False", "ProgressDeadlineExceeded", "timed out")),
        {"replicaset": [], "pod": [running("p")]},
        "ProgressDeadlineExceeded",
        "timed out",
        "kubectl rollout undo deployment web -n shop",
        True,
    ),
    "a rollout whose newest pods do not become ready": (
        "deployment",
        thing(
            replicas=3,
            status={"replicas": 4, "readyReplicas": 3, "updatedReplicas": 1, "unavailableReplicas": 1},
        ),
        {"replicaset": [], "pod": [running("p")]},
        "RolloutUnderWay",
        "1 of 3 pods have its newest template; 1 is not available yet, the old ones serve",
        "kubectl rollout undo deployment web -n shop",
        False,
    ),
    "paused before the first pod": (
        "deployment",
        thing(paused=True),
        {},
        "Paused",
        "spec.paused",
        "kubectl rollout resume deployment web -n shop",
        True,
    ),
    "a DaemonSet that fits no node": (
        "daemonset",
        thing(
            status={"desiredNumberScheduled": 0, "observedGeneration": 1},
            template={"spec": {"nodeSelector": {"disk": "ssd"}}},
        ),
        {},
        "NoNodeFits",
        "disk=ssd",
        "kubectl label nodes --all disk=ssd",
        False,
    ),
    "no controller makes the pods": ("deployment", DEPLOYMENT, {}, "NoPods", "no pod", "controller manager", True),
    "a Job that gave up": (
        "job",
        thing(status=condition("Failed", "True", "BackoffLimitExceeded", "reached the backoff limit")),
        {},
        "BackoffLimitExceeded",
        "backoff limit",
        "delete the Job (`kubectl delete job web -n shop`) and create it again; a CronJob makes the next one by itself",
        True,
    ),
    "a Job that took too long": (
        "job",
        thing(status=condition("Failed", "True", "DeadlineExceeded", "longer than")),
        {},
        "DeadlineExceeded",
        "longer",
        "activeDeadlineSeconds",
        True,
    ),
    "a suspended Job": ("job", thing(suspend=True), {}, "Suspended", "spec.suspend", "kubectl patch job web", True),
    "a suspended CronJob": (
        "cronjob",
        thing(schedule="@daily", suspend=True),
        {},
        "Suspended",
        "spec.suspend",
        "kubectl patch cronjob web",
        False,
    ),
    "a claim without a class": (
        "pvc",
        thing(),
        {"storageclass": [cluster_wide("slow")]},
        "NoDefaultStorageClass",
        "there is: slow",
        "provisioner",
        True,
    ),
    "a claim of a class that does not exist": (
        "pvc",
        thing(storageClassName="fast"),
        {},
        "NoStorageClass",
        '"fast"',
        "Create the StorageClass",
        True,
    ),
    "a claim for a volume made by hand": ("pvc", thing(storageClassName=""), {}, "NoVolumeFits", "", "get pv", True),
    "a claim that a pod uses, bound late": (
        "pvc",
        with_notes(thing(storageClassName="disk"), CHOSEN),
        {"storageclass": [cluster_wide("disk", **LATE)], "pod": [USER]},
        "Provisioning",
        "example.com/disk has not made",
        "provisioner",
        True,
    ),
    "a claim of our own driver, bound late": (
        "pvc",
        with_notes(thing(storageClassName="local"), CHOSEN),
        {"storageclass": [cluster_wide("local", **{**LATE, "provisioner": "csi.nodewright.local"})], "pod": [USER]},
        "Provisioning",
        "csi.nodewright.local has not made",
        "csi-provisioner.log",
        True,
    ),
    "a claim bound late, of a pod without a node": (
        "pvc",
        thing(storageClassName="disk"),
        {"storageclass": [cluster_wide("disk", **LATE)], "pod": [UNPLACED]},
        "WaitForPodScheduled",
        "none is chosen yet for pod web",
        "`nodewright why shop/web`",
        True,
    ),
    "a claim bound late, of a pod that names its node itself": (
        "pvc",
        thing(storageClassName="disk"),
        {"storageclass": [cluster_wide("disk", **LATE)], "pod": [USER]},
        "WaitForPodScheduled",
        "pod web has its node from spec.nodeName",
        "kubernetes.io/hostname",
        True,
    ),
    "a claim that its driver cannot make": (
        "pvc",
        thing(storageClassName="local"),
        {
            "storageclass": [cluster_wide("local", **LATE)],
            "pod": [USER],
            "event": [
                event(
                    thing(),
                    "ProvisioningFailed",
                    "rpc error: code = InvalidArgument desc = a volume is on one node: ReadWriteMany cannot be had",
                )
            ],
        },
        "ProvisioningFailed",
        "ReadWriteMany cannot be had",
        "delete it",
        True,
    ),
    "a claim for which a node has no room": (
        "pvc",
        thing(storageClassName="local"),
        {
            "storageclass": [cluster_wide("local", **LATE)],
            "pod": [USER],
            "event": [
                event(
                    thing(),
                    "ProvisioningFailed",
                    "rpc error: code = ResourceExhausted desc = 2Ti are needed, and 40Gi are left on this node for "
                    "volumes.",
                )
            ],
        },
        "ProvisioningFailed",
        "40Gi are left",
        "csistoragecapacities",
        True,
    ),
    "a claim that has not grown on its node": (
        "pvc",
        thing(status={"phase": "Bound", **condition("NodeResizeError", "True", "", "CAP_SYS_RESOURCE is missing")}),
        {"pod": [USER]},
        "NodeResizeError",
        "CAP_SYS_RESOURCE",
        "tries again",
        True,
    ),
    "a claim that its driver does not let grow": (
        "pvc",
        thing(status={"phase": "Bound", **condition("ControllerResizeError", "True", "", "larger than the node")}),
        {},
        "ControllerResizeError",
        "larger than the node",
        "edit pvc",
        True,
    ),
    "a claim that is deleted and used": (
        "pvc",
        {**thing(), "metadata": {**thing()["metadata"], "deletionTimestamp": NOW}},
        {"pod": [USER]},
        "InUse",
        "used by web",
        "Delete the pods",
        True,
    ),
    "a LoadBalancer without an address": (
        "service",
        thing(**BALANCED),
        {"node": [NODE]},
        "NoLoadBalancer",
        "nothing in this cluster gives addresses",
        "10.9.0.1:30080",
        True,
    ),
    "a Service that selects nothing": (
        "service",
        thing(selector={"app": "none"}),
        {"pod": [running("p")], "endpointslice": []},
        "NoPodSelected",
        "app=none",
        "set selector service web app=web",
        True,
    ),
    "a Service whose workload is scaled to 0": (
        "service",
        thing(selector=LABELS),
        {"pod": [], "endpointslice": [], "deployment": [ASLEEP]},
        "NoPodSelected",
        "app=web",
        "a Deployment with 0 replicas has no pods",
        False,
    ),
    "a Service whose pods are not ready": (
        "service",
        thing(selector=LABELS),
        {"pod": [running("web-1", ready=False)], "endpointslice": []},
        "PodNotReady",
        "Pod shop/web-1 is not ready",
        "`nodewright why shop/web-1`",
        False,
    ),
    "a targetPort that no pod names": (
        "service",
        thing(selector=LABELS, ports=[{"port": 80, "targetPort": "http"}]),
        {"pod": [running("p", containers=[{"ports": [{"name": "web"}]}])], "endpointslice": []},
        "NoSuchPort",
        "names a port http (they name web)",
        "in targetPort of the Service",
        True,
    ),
    "an Ingress without any controller": (
        "ingress",
        thing(),
        {"ingressclass": []},
        "NoIngressController",
        "no Ingress controller",
        "`nodewright addons add ingress`",
        True,
    ),
    "an Ingress of a class that does not exist": (
        "ingress",
        thing(ingressClassName="x"),
        {"ingressclass": [cluster_wide("traefik")]},
        "NoIngressClass",
        "there is: traefik",
        "ingressClassName",
        True,
    ),
    "an Ingress without a class": (
        "ingress",
        thing(),
        {"ingressclass": [cluster_wide("traefik")]},
        "NoIngressClass",
        "names no IngressClass",
        "ingressClassName",
        True,
    ),
    "an Ingress whose Service does not exist": (
        "ingress",
        thing(ingressClassName="traefik", rules=[{"http": {"paths": [{"backend": BACKEND}]}}]),
        {"ingressclass": [cluster_wide("traefik")]},
        "NoBackend",
        'no Service "web"',
        "kubectl get services -n shop",
        True,
    ),
    "a Node that somebody drained": (
        "node",
        cluster_wide("n2", status=condition("Ready", "True", "KubeletReady"), spec={"unschedulable": True}),
        {},
        "Cordoned",
        "cordoned or drained",
        "kubectl uncordon n2",
        True,
    ),
    "a Node whose agent is silent": (
        "node",
        cluster_wide("n2", status=condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting")),
        {},
        "NodeStatusUnknown",
        "stopped posting",
        "nodewright status",
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_of_it(name: str) -> None:
    kind, obj, more, reason, error, advice, listed = CASES[name]
    found = judged(kind, obj, **more)
    waits = {one.reason: one for one in found.found.waits}
    assert reason in waits, waits
    assert error in waits[reason].error and advice in waits[reason].action
    assert (found.listed, found.is_well) == (listed, False)


WELL: dict[str, tuple[str, Json, dict[str, list[Json]]]] = {
    "deployment": ("deployment", thing(replicas=1, status={"readyReplicas": 1}), {}),
    "scaled to 0": ("deployment", thing(replicas=0), {}),
    "done": ("job", thing(status={"succeeded": 1, **condition("Complete", "True", "CompletionsReached")}), {}),
    "bound": ("pvc", thing(status={"phase": "Bound"}), {}),
    "bound late, and no pod uses it": (
        "pvc",
        thing(storageClassName="disk"),
        {"storageclass": [cluster_wide("disk", **LATE)]},
    ),
    "about to get the default class": ("pvc", thing(), {"storageclass": [cluster_wide("disk", annotations=DEFAULT)]}),
    "balanced": ("service", thing(**BALANCED, status={"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}), {}),
    "a Service without a selector": ("service", thing(), {"pod": [], "endpointslice": [SLICE]}),
    "ExternalName": ("service", thing(type="ExternalName", selector=LABELS), {"pod": [], "endpointslice": []}),
    "targetPort by number": (
        "service",
        thing(selector=LABELS, ports=[{"port": 80, "targetPort": 8080}]),
        {"pod": [SERVER], "endpointslice": [SLICE]},
    ),
    "a Service whose EndpointSlices are not listed": (
        "service",
        thing(selector=LABELS),
        {"pod": [running("web-1", ready=False)]},
    ),
    "an Ingress with an address": ("ingress", thing(status={"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}), {}),
    "a ready Node": ("node", cluster_wide("n2", status=condition("Ready", "True", "KubeletReady")), {}),
}


@pytest.mark.parametrize("name", WELL)
def test_what_is_well_has_no_advice(name: str) -> None:
    kind, obj, more = WELL[name]
    found = judged(kind, obj, **more)
    assert found.is_well and not found.listed, found.found.waits


def test_a_service_whose_pods_listen_elsewhere_is_listed() -> None:
    obj = thing(selector=LABELS, ports=[{"port": 80, "targetPort": 8080}])
    facts = Facts({"service": (obj,), "pod": (SERVER,), "endpointslice": (SLICE,)})
    heard = (Listener("tcp", "::", 3000),)
    (found,) = judge.objects(facts, (), lambda known: {"10.0.0.2": heard}.get)
    (wait,) = found.found.waits
    assert found.listed and (wait.on, wait.reason) == ("a port", "NobodyListens")
    assert "In pod shop/p nobody listens on 8080/tcp, only on 3000/tcp" in wait.error
    assert "If 3000 is the right port: `kubectl -n shop patch service web" in wait.action


def test_a_node_that_was_deleted_is_named() -> None:
    facts = Facts({"node": (cluster_wide("n1", status=condition("Ready", "True", "x")),)})
    found = [one for one in judge.objects(facts, ("n1", "n2")) if not one.is_well]
    assert [(one.found.name, one.found.waits[0].reason) for one in found] == [("n2", "NotRegistered")]
    assert "nodewright up" in found[0].found.waits[0].action
    nobody = {"metadata": {"creationTimestamp": NOW}, "involvedObject": {}, "reason": "x", "message": "of no object"}
    (absent,) = judge.objects(Facts({"node": (), "event": (nobody,)}), ("n2",))
    assert absent.found.timeline == ()
    assert judge.objects(Facts(), ("n1",)) == [], "without an API server nothing is known of Nodes"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("web-0", Target("pod", "default", "web-0")),
        ("shop/web-0", Target("pod", "shop", "web-0")),
        ("pod/web-0", Target("pod", "default", "web-0")),
        ("deploy/web", Target("deployment", "default", "web")),
        ("Deployments/web", Target("deployment", "default", "web")),
        ("shop/sts/db", Target("statefulset", "shop", "db")),
        ("cj/a", Target("cronjob", "default", "a")),
        ("service web", Target("service", "default", "web")),
        ("ing/web", Target("ingress", "default", "web")),
        ("no/n1", Target("node", "default", "n1")),
    ],
)
def test_what_can_be_asked_for(text: str, expected: Target) -> None:
    assert target(text, "default") == expected


@pytest.mark.parametrize("text", ["deploy/", "/web", "a/b/c", "a/deploy/web/x", "configmap conf", "service a/b"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        target(text, "default")


OTHERS = (Target("deployment", "shop", "web"), Target("service", "default", "web"), Target("node", "", "n1"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("web", "There is service web in namespace default: `nodewright why service/web`."),
        ("deploy/web", "There is deployment web in namespace shop: `nodewright why shop/deployment/web`."),
        ("n1", "There is node n1: `nodewright why node/n1`."),
        ("pods", "After a kind comes a name: `nodewright why pod/NAME`."),
        ("cm/conf", f"Nothing is in namespace cm; if that is a kind, `why` knows only {', '.join(KINDS)}."),
        ("nothing", ""),
    ],
)
def test_a_name_that_is_not_there_leads_to_one_that_is(text: str, said: str) -> None:
    assert meant(target(text, "default"), OTHERS) == said


def test_a_deployment_leads_to_its_pods_by_way_of_its_replica_sets() -> None:
    pods = (running("web-1-a", owner=SET), running("other"))
    facts = Facts({"deployment": (DEPLOYMENT,), "replicaset": (SET,), "pod": pods})
    every = [*judge.explained({}, facts), *judge.objects(facts, ())]
    found = judge.about(Target("deployment", "shop", "web"), every, facts)
    assert [(one.kind, one.found.name) for one in found] == [("deployment", "web"), ("pod", "web-1-a")]
    assert found[1].owner == "deployment/web"
    assert judge.about(Target("deployment", "shop", "nosuch"), every, facts) == []


def test_the_list_of_one_namespace_has_the_nodes_too() -> None:
    facts = Facts({"pvc": (thing(), {**thing(), "metadata": {**thing()["metadata"], "namespace": "b"}}), "node": ()})
    every = judge.objects(facts, ("n1",))
    shown = {(one.kind, one.found.namespace) for one in judge.troubles(every, "shop")}
    assert shown == {("pvc", "shop"), ("node", "")}
    assert len(judge.troubles(every, "")) == 3


def test_a_failed_pod_of_a_job_that_succeeded_is_not_listed() -> None:
    done = {**thing("j", status=condition("Complete", "True", "x")), "kind": "Job"}
    failed = thing("j-1", owner=done, status={"phase": "Failed"}, nodeName="n1")
    facts = Facts({"job": (done,), "pod": (failed,)})
    assert judge.troubles(judge.explained({}, facts), "") == []
    alone = Facts({"job": (JOB,), "pod": (failed,)})
    assert len(judge.troubles(judge.explained({}, alone), "")) == 1


def test_a_run_of_a_cron_job_that_failed_is_forgotten_once_a_later_one_has_succeeded() -> None:
    cron = {**thing("nightly", schedule="@daily"), "kind": "CronJob"}
    first = {
        **thing("nightly-1", owner=cron, status=condition("Failed", "True", "BackoffLimitExceeded")),
        "kind": "Job",
    }
    later = {**thing("nightly-2", owner=cron, status=condition("Complete", "True", "x")), "kind": "Job"}
    later["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    failed = thing("nightly-1-x", owner=first, status={"phase": "Failed"}, nodeName="n1")
    for jobs, shown in (((first,), ["nightly-1-x", "nightly-1"]), ((first, later), [])):
        facts = Facts({"cronjob": (cron,), "job": jobs, "pod": (failed,)})
        every = [*judge.explained({}, facts), *judge.objects(facts, ())]
        assert [one.found.name for one in judge.troubles(every, "")] == shown


@pytest.mark.parametrize(
    ("about", "looks"), [(None, True), ("svc/web", True), ("pod/web", False), ("deploy/web", False)], ids=str
)
def test_who_listens_is_read_only_for_services(about: str | None, looks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Cluster] = []

    def listening(cluster: Cluster, known: object) -> Listening:
        asked.append(cluster)
        return unknown

    monkeypatch.setattr("cli.explain.read.listening", listening)
    cluster = Cluster("lab", "10.89.3.0/24", Options())
    why.judged(cluster, Answers({}, {}, Facts({"pod": ()}), ""), target(about, "default") if about else None)
    assert asked == ([cluster] if looks else [])
