"""`why`, `service`, `trace`, `status`, `doctor` and `clusters` survive every value of a wrong type in an API object.

A broken API server, or what answers in its place, may send anything that is JSON; an agent's answer may come from
whoever is root in its node.
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from rich.console import Console

from agent.explain.plan.document import to_json, usable
from cli.commands import images, why
from cli.display.terminal import new_console
from cli.explain import facts as explain
from cli.explain import places, service_text, service_words
from cli.explain.balancer import announced
from cli.explain.endpoints import missing, ports, silent_endpoints
from cli.why import judge, logs, show
from cli.why.model import KINDS, OTHERS, Facts
from cli.why.sources import Answers
from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan.readiness import (
    node_state,
    node_versions,
    pod_facts,
    serving_waits_for,
    unexpected_conditions,
)
from controlplane.doctor.model import NodeFacts
from controlplane.doctor.plan import cis, registration
from loadbalancer.model import NAMESPACE
from loadbalancer.plan import table
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json
from nodelib.kube import shapes
from nodelib.text import one_line
from tests.builders.wrong_types import HOSTILE, WRONG, mutants

_TIME = "2026-11-22T10:00:00Z"
_META = {"uid": "u-1", "namespace": "ns", "labels": {"app": "web"}, "creationTimestamp": _TIME}
_CONDITION = {"type": "Ready", "status": "False", "reason": "X", "message": "m", "lastTransitionTime": _TIME}
_ENDED = {"terminated": {"exitCode": 1, "reason": "Error", "message": "m", "startedAt": _TIME, "finishedAt": _TIME}}


def _owned(kind: str, uid: str) -> list[Json]:
    return [{"kind": kind, "name": "web", "uid": uid, "controller": True}]


_POD_SPEC = {
    "nodeName": "node1",
    "nodeSelector": {"disk": "ssd"},
    "containers": [{"name": "web", "ports": [{"name": "http", "containerPort": 8080, "hostPort": 80}]}],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
}
_BOX = {"name": "web", "ready": False, "restartCount": 3, "lastState": _ENDED}
_WAITING = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
_SCHEDULED = {**_CONDITION, "type": "PodScheduled", "reason": "Unschedulable", "message": "0/2: Insufficient cpu."}
_FAILED = ("rs-1", "FailedCreate"), ("cron-1", "FailedCreate")
_EVENTS = (("pod-1", "Killing"), ("pvc-2", "ProvisioningFailed"), *_FAILED)
WORLD: Mapping[str, list[Json]] = {
    "/api/v1/pods": [
        {
            "metadata": {**_META, "name": "web-0", "uid": "pod-1", "ownerReferences": _owned("ReplicaSet", "rs-1")},
            "spec": _POD_SPEC,
            "status": {
                "phase": "Running",
                "podIP": "10.0.1.2",
                "podIPs": [{"ip": "10.0.1.2"}],
                "conditions": [_CONDITION],
                "containerStatuses": [{**_BOX, "state": _WAITING}],
                "initContainerStatuses": [{**_BOX, "state": _ENDED}],
            },
        },
        {
            "metadata": {**_META, "name": "new", "uid": "pod-2", "ownerReferences": _owned("Job", "job-1")},
            "spec": {key: value for key, value in _POD_SPEC.items() if key != "nodeName"},
            "status": {"phase": "Pending", "conditions": [_SCHEDULED]},
        },
        {
            "metadata": {
                **_META,
                "name": "going",
                "uid": "pod-3",
                "deletionTimestamp": _TIME,
                "deletionGracePeriodSeconds": 30,
                "finalizers": ["a/b"],
            },
            "spec": _POD_SPEC,
            "status": {"phase": "Failed", "reason": "Evicted", "message": "low on resource: memory"},
        },
    ],
    "/apis/apps/v1/deployments": [
        {
            "metadata": {**_META, "name": "web", "uid": "dep-1"},
            "spec": {"replicas": 3, "paused": True, "template": {"spec": _POD_SPEC}},
            "status": {
                "readyReplicas": 1,
                "updatedReplicas": 1,
                "conditions": [
                    {**_CONDITION, "type": "ReplicaFailure", "status": "True", "message": "exceeded quota: q, x"},
                    {**_CONDITION, "type": "Progressing", "reason": "ProgressDeadlineExceeded"},
                ],
            },
        }
    ],
    "/apis/apps/v1/replicasets": [
        {
            "metadata": {**_META, "name": "web", "uid": "rs-1", "ownerReferences": _owned("Deployment", "dep-1")},
            "spec": {"replicas": 3},
            "status": {"readyReplicas": 1, "conditions": [{**_CONDITION, "type": "ReplicaFailure", "status": "True"}]},
        }
    ],
    "/apis/apps/v1/daemonsets": [
        {
            "metadata": {**_META, "name": "every", "uid": "ds-1"},
            "spec": {"template": {"spec": _POD_SPEC}},
            "status": {"desiredNumberScheduled": 2, "numberReady": 1},
        }
    ],
    "/apis/batch/v1/jobs": [
        {
            "metadata": {**_META, "name": "once", "uid": "job-1", "ownerReferences": _owned("CronJob", "cron-1")},
            "spec": {"completions": 2, "suspend": True},
            "status": {"succeeded": 1, "ready": 0, "conditions": [{**_CONDITION, "type": "Failed", "status": "True"}]},
        }
    ],
    "/apis/batch/v1/cronjobs": [
        {
            "metadata": {**_META, "name": "often", "uid": "cron-1"},
            "spec": {"schedule": "* * * * *", "suspend": False},
            "status": {"lastScheduleTime": _TIME, "active": []},
        }
    ],
    f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases": [
        {
            "metadata": {
                "name": table.LEASE,
                "uid": "lease-1",
                "annotations": {
                    table.ANNOTATION: '{"192.0.2.8":{"node":"","services":["svc-1"]}}',
                    table.POOL: "192.0.2.8-192.0.2.9",
                },
            },
            "spec": {"holderIdentity": "node1_x"},
        }
    ],
    "/api/v1/services": [
        {
            "metadata": {**_META, "name": "web", "uid": "svc-1"},
            "spec": {
                "type": "LoadBalancer",
                "clusterIP": "10.96.0.7",
                "clusterIPs": ["10.96.0.7"],
                "ipFamilies": ["IPv4"],
                "externalIPs": ["192.0.2.7"],
                "selector": {"app": "web"},
                "internalTrafficPolicy": "Local",
                "ports": [{"name": "http", "port": 80, "nodePort": 30080, "targetPort": "http", "protocol": "TCP"}],
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.8"}]}},
        },
        {
            "metadata": {**_META, "name": "head", "uid": "svc-2"},
            "spec": {"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"port": 80}], "selector": {"app": "web"}},
            "status": {},
        },
        {
            "metadata": {**_META, "name": "alias", "uid": "svc-3"},
            "spec": {"type": "ExternalName", "externalName": "web.ns.svc.cluster.local"},
            "status": {},
        },
    ],
    "/apis/discovery.k8s.io/v1/endpointslices": [
        {
            "metadata": {**_META, "uid": name, "name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [
                {
                    "addresses": ["10.0.1.2"],
                    "hostname": "web-0",
                    "nodeName": "node1",
                    "conditions": {"ready": True, "serving": True, "terminating": False},
                    "targetRef": {"kind": "Pod", "name": "web-0", "namespace": "ns"},
                    "hints": {"forZones": [{"name": "a"}]},
                }
            ],
        }
        for name in ("web", "head")
    ],
    "/apis/networking.k8s.io/v1/ingresses": [
        {
            "metadata": {**_META, "name": "in", "uid": "in-1", "annotations": {"kubernetes.io/ingress.class": "x"}},
            "spec": {
                "ingressClassName": "nginx",
                "rules": [{"http": {"paths": [{"backend": {"service": {"name": "none"}}}]}}],
                "defaultBackend": {"service": {"name": "web"}},
            },
            "status": {"loadBalancer": {}},
        }
    ],
    "/api/v1/nodes": [
        {
            "metadata": {"name": "node1", "uid": "n-1", "labels": {"disk": "hdd"}, "creationTimestamp": _TIME},
            "spec": {"podCIDR": "10.0.1.0/24", "taints": [{"key": "a", "effect": "NoSchedule", "value": "b"}]},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.89.0.11"}],
                "conditions": [_CONDITION, {**_CONDITION, "type": "DiskPressure", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1.37.1", "containerRuntimeVersion": "containerd://2.4.2"},
            },
        }
    ],
    "/api/v1/persistentvolumeclaims": [
        {
            "metadata": {**_META, "name": "data", "uid": "pvc-1", "finalizers": ["x"], "deletionTimestamp": _TIME},
            "spec": {"storageClassName": "slow", "volumeName": "v"},
            "status": {"phase": "Pending"},
        },
        {
            "metadata": {**_META, "name": "lost", "uid": "pvc-2"},
            "spec": {"storageClassName": "slow", "volumeName": "v"},
            "status": {"phase": "Pending"},
        },
    ],
    "/apis/storage.k8s.io/v1/storageclasses": [
        {"metadata": {"name": "slow", "uid": "sc-1"}, "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"}
    ],
    "/api/v1/events": [
        {
            "metadata": {"name": f"e{number}", "namespace": "ns", "uid": f"e-{number}", "creationTimestamp": _TIME},
            "type": "Warning",
            "reason": reason,
            "message": "failed liveness probe, will be restarted",
            "count": 3,
            "firstTimestamp": _TIME,
            "lastTimestamp": _TIME,
            "series": {"count": 4, "lastObservedTime": _TIME},
            "involvedObject": {"uid": uid, "fieldPath": "spec.containers{web}"},
        }
        for number, (uid, reason) in enumerate(_EVENTS)
    ],
}
_LABELS = {"spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]}}
WORLD = {
    **WORLD,
    "/apis/networking.k8s.io/v1/networkpolicies": [{"metadata": {**_META, "name": "deny"}, **_LABELS}],
}
# All of them take two minutes; by hand: NODEWRIGHT_SEED=0..15 one after the other.
SHARDS = 16
SHARD = int(os.environ.get("NODEWRIGHT_SEED") or 0) % SHARDS
_CLUSTER = Cluster("lab", "10.89.0.0/24", Options(nodes=2))
_PATHS = {kind: path for kind, (_, path) in KINDS.items()} | dict(OTHERS)


def shown(lists: Mapping[str, tuple[Json, ...]]) -> str:
    """All that `why` prints of these objects."""
    out = io.StringIO()
    facts = Facts({kind: lists.get(path, ()) for kind, path in _PATHS.items()})
    found = judge.everything({}, facts, ["node1", "node2"])
    page = show.Page(1e9, console=new_console(out, width=200))
    show.many(judge.troubles(found, ""), page)
    for one in found:
        show.one(one, page)
        obj = facts.named(one.kind, one.found.namespace, one.found.name)
        if one.kind == "pod" and obj is not None:
            logs.wanted(obj)
    return out.getvalue()


def explained(lists: Mapping[str, tuple[Json, ...]]) -> str:
    """All that `service` prints, and what `trace` makes of its words."""
    names = ("services", "endpointslices", "pods", "nodes", "networkpolicies", "leases")
    by_name = {path.rpartition("/")[2]: found for path, found in lists.items()}
    facts = explain.Facts.of(*(by_name[name] for name in names))
    said: list[str] = []
    for service in facts.services:
        silent = silent_endpoints(service, facts, lambda address: ())
        problems = service_words.problems(service, facts, lambda address: (), "cluster.local")
        views = {node: tuple(ports(service, facts, node)) for node in ("node1", "node2")}
        said += service_text.head(
            service, service_words.about(service, facts, "cluster.local"), problems, announced(service, facts)
        )
        said += service_text.endpoints(service, facts, silent)
        said += service_text.ports(views, silent)
        said += missing(service, facts)
    senders, targets = ("web-0", "node1", "outside", "10.0.1.2"), ("web", "head", "alias", "web-0:http")
    for come, to in itertools.product(senders, targets):
        try:
            places.target(to, facts, "ns", places.sender(come, facts, "ns", "192.0.2.1"), "")
        except NodewrightError as error:
            said.append(str(error))
    return "\n".join(one_line(one, 2000) for one in said)


def of_status(lists: Mapping[str, tuple[Json, ...]]) -> None:
    """What `status`, `clusters` and `doctor` read."""
    for node in lists["/api/v1/nodes"]:
        node_state(node)
        unexpected_conditions(node)
        serving_waits_for(node)
        node_versions(node)
    registration.registration(_CLUSTER, lists["/api/v1/nodes"], "")
    registration.missing_routes("lab/node1", "node1", [], registration.pod_ranges(lists["/api/v1/nodes"]), "")
    for pod in lists["/api/v1/pods"]:
        pod_facts(pod)


def worlds(path: str) -> Iterator[dict[str, tuple[Json, ...]]]:
    for place, found in enumerate(WORLD[path]):
        for mutant in mutants(found):
            items = [*WORLD[path][:place], mutant, *WORLD[path][place + 1 :]]
            yield {each: tuple(shapes.objects(each, items if each == path else WORLD[each])) for each in WORLD}


def test_the_world_is_read_as_it_is() -> None:
    """Or nothing that follows would mean anything."""
    lists = {path: tuple(shapes.objects(path, found)) for path, found in WORLD.items()}
    assert {path: list(found) for path, found in lists.items()} == {
        path: [{**({"spec": {}, "status": {}} if path in _BOTH else {}), **one} for one in found]
        for path, found in WORLD.items()
    }
    text = shown(lists)
    for words in ("CrashLoopBackOff", "Insufficient cpu", "kubectl describe quota q", "pvc ns/lost", "ingress ns/in"):
        assert words in text
    assert "Service ns/web" in explained(lists)


_BOTH = [path for path in WORLD if not path.endswith(("events", "endpointslices", "storageclasses"))]


@pytest.mark.parametrize("path", WORLD)
def test_every_value_may_be_of_a_wrong_type(path: str) -> None:
    for lists in itertools.islice(worlds(path), SHARD, None, SHARDS):
        page, services = shown(lists), explained(lists)
        of_status(lists)
        assert "\x1b" not in page and "\n  do: run `x`" not in page + services


def test_an_agent_s_answer_may_be_anything() -> None:
    facts = Facts({kind: tuple(shapes.objects(path, WORLD.get(path, []))) for kind, path in _PATHS.items()})
    known = next(one for one in judge.everything({}, facts) if one.found.name == "web-0").found
    for mutant in mutants({**to_json(known), "timeline": [{"at": 1.0, "step": "start", "seconds": 0.1}]}):
        one = usable(mutant)
        agents = {"node1": [one] if one is not None else []}
        out = io.StringIO()
        page = show.Page(1e9, console=new_console(out, width=200))
        for each in judge.everything(agents, facts):
            show.one(each, page)
        assert "\x1b" not in out.getvalue()
    assert usable([]) is None and usable({"name": "x"}) is None


def test_a_report_of_images_may_be_anything() -> None:
    image = {"id": "i", "names": ["a:1"], "size": 5, "detected": 1.0, "used": 0.0}
    image["holds"] = [{"kind": "container", "who": "web"}]
    report = {"node": "n", "at": 1.0, "capacity": 9, "available": 2, "high": 85, "low": 80, "to_free": 0}
    last = {"at": 1.0, "wanted": 5, "freed": 4, "removed": ["x"], "problem": "p"}
    whole = {**report, "images": [image], "last": last}
    for mutant in mutants(whole):
        one = images.usable(mutant)
        if one is not None:
            console = new_console(io.StringIO(), width=200)
            parsed = images.parse(one)
            console.print(images._table(parsed.images, 2.0))
            for line in (*images.summary(parsed, 2.0), *images._dry(parsed, 5)):
                console.print(line)
    assert images.usable({**report, "more": 1}) == {**report, "images": [], "last": None}
    assert images.usable([]) is None


def test_a_configuration_of_a_kubelet_may_be_anything() -> None:
    """`doctor --cis` judges what a node's agent shows, or whoever listens in its place."""
    fields = [
        "authentication.anonymous.enabled",
        "authentication.x509.clientCAFile",
        "authentication.webhook.enabled",
        "authorization.mode",
        "readOnlyPort",
        "streamingConnectionIdleTimeout",
        "makeIPTablesUtilChains",
        "eventRecordQPS",
        "tlsCertFile",
        "tlsPrivateKeyFile",
        "rotateCertificates",
        "serverTLSBootstrap",
        "tlsCipherSuites",
        "podPidsLimit",
        "seccompDefault",
        "protectKernelDefaults",
        "featureGates.RotateKubeletServerCertificate",
    ]
    for field in fields:
        for wrong in WRONG:
            config: Any = wrong
            for name in reversed(field.split(".")):
                config = {name: config}
            assert cis.judge(NodeFacts(node="n", flags={}, configuration=config))


def test_a_console_shows_what_would_drive_a_terminal() -> None:
    out = io.StringIO()
    console: Console = new_console(out, width=80)
    console.print("a\x1b]0;title\x07b")
    assert out.getvalue() == "a\\x1b]0;title\\x07b\n"


def test_notes_of_why_drive_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    refused = {"job": Temporary(f"no {HOSTILE}")}
    why._notes(Answers({}, {"node1": HOSTILE}, Facts({"pod": ()}), "", refused))
    why._notes(Answers({}, {}, Facts(), HOSTILE))
    said = capsys.readouterr().err
    assert "\x1b" not in said and len(said.splitlines()) == 3
