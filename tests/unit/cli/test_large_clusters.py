"""`why` and `service` of a cluster with very many objects: linear work, so seconds and not hours."""

from __future__ import annotations

import io
import time

from cli.display.terminal import new_console
from cli.explain import facts as explain
from cli.explain import service_text, service_words
from cli.explain.endpoints import missing, ports, silent_endpoints
from cli.why import judge, show
from cli.why.model import Facts
from nodelib.json_values import Json

PODS, ENDPOINTS = 20_000, 5_000
_LIMIT = 60.0  # seconds of CPU; it takes five, and ten minutes when every object is compared with every other


def _pod(number: int) -> Json:
    owner = {"kind": "ReplicaSet", "name": "web", "uid": f"rs-{number % 500}", "controller": True}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    meta = {"name": f"web-{number}", "namespace": "ns", "uid": f"pod-{number}", "labels": {"app": f"web-{number % 99}"}}
    status = {"phase": "Running", "podIP": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"}
    return {
        "metadata": {**meta, "ownerReferences": [owner]},
        "spec": {"nodeName": "node1"},
        "status": {**status, "containerStatuses": [{"name": "web", "state": waiting}]},
    }


def _service(number: int) -> Json:
    address = f"10.96.{number >> 8}.{number & 255}"
    spec = {
        "clusterIP": address,
        "clusterIPs": [address],
        "selector": {"app": f"web-{number}"},
        "ports": [{"port": 80}],
    }
    return {"metadata": {"name": f"s{number}", "namespace": "ns", "uid": f"s{number}"}, "spec": spec, "status": {}}


def test_why_of_very_many_pods() -> None:
    about = [{"uid": f"pod-{number}"} for number in range(PODS)]
    lists = {
        "pod": tuple(map(_pod, range(PODS))),
        "replicaset": tuple(
            {"metadata": {"name": f"r{one}", "namespace": "ns", "uid": f"rs-{one}"}, "spec": {}, "status": {}}
            for one in range(500)
        ),
        "service": tuple(map(_service, range(1000))),
        "event": tuple(
            {"metadata": {"name": "e", "namespace": "ns", "uid": "e"}, "reason": "BackOff", "involvedObject": one}
            for one in about
        ),
    }
    began = time.process_time()
    found = judge.everything({}, Facts(lists), ["node1"])
    out = io.StringIO()
    show.many(judge.troubles(found, ""), show.Page(1e9, console=new_console(out, width=200)))
    assert time.process_time() - began < _LIMIT
    assert len(found) > PODS and "CrashLoopBackOff" in out.getvalue()


def test_a_service_of_very_many_endpoints() -> None:
    def part(first: int) -> Json:
        entries = [
            {
                "addresses": [pods[number]["status"]["podIP"]],
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "name": f"web-{number}"},
            }
            for number in range(first, first + 100)
        ]
        labels = {"kubernetes.io/service-name": "s0"}
        meta = {"name": f"s0-{first}", "namespace": "ns", "uid": f"slice-{first}", "labels": labels}
        return {"metadata": meta, "addressType": "IPv4", "ports": [{"port": 80, "name": ""}], "endpoints": entries}

    pods = list(map(_pod, range(PODS)))
    began = time.process_time()
    facts = explain.Facts.of([_service(0)], map(part, range(0, ENDPOINTS, 100)), pods, [], [])
    (service,) = facts.services
    views = {node: tuple(ports(service, facts, node)) for node in ("node1", "node2")}
    silent = silent_endpoints(service, facts, lambda address: ())
    lines = [*service_text.ports(views, silent), *missing(service, facts)]
    service_words.problems(service, facts, lambda address: (), "cluster.local")
    assert time.process_time() - began < _LIMIT
    assert f"of {ENDPOINTS} endpoints" in "\n".join(lines) and len(lines) < ENDPOINTS
