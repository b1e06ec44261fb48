"""What `service` says of a Service that does not serve: one sentence and what to do, for each way to be broken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from cli.explain.facts import Facts
from cli.explain.listening import silence
from cli.explain.service_words import about, problems
from controlplane.machine.model import Listener
from nodelib.json_values import Json
from tests.builders.pods import container, pod_json
from tests.builders.services import endpoint, endpoint_slice, node, service

DOMAIN, NODE = "cluster.local", "10.89.1.11"
READY = [{"type": "Ready", "status": "True"}]
WEB = {"app": "web"}
_8080 = {"name": "", "port": 8080, "protocol": "TCP"}
PORTS = [{"port": 80, "targetPort": 8080, "protocol": "TCP"}]


def pod(
    name: str = "web-0", ip: str = "10.0.1.2", *, labels: Json | None = None, space: str = "ns", **status: Any
) -> Json:
    found = {"phase": "Running", "podIP": ip, "conditions": READY, **status}
    meta = {"namespace": space, "labels": WEB if labels is None else labels}
    return pod_json(name, container("web"), meta=meta, status=found, nodeName="node1")


def slice_of(*addresses: str, port: Json = _8080, pods: bool = True, ready: bool = True) -> Json:
    entries = [endpoint(one, "node1", ready=ready) for one in addresses]
    for number, one in enumerate(entries):
        if pods:
            one["targetRef"] = {"kind": "Pod", "name": f"web-{number}", "namespace": "ns"}
    return endpoint_slice("web", entries, ports=[port])


def at(*ports: int, protocol: str = "tcp", address: str = "0.0.0.0") -> tuple[Listener, ...]:
    return tuple(Listener(protocol, address, port) for port in ports)


@dataclass(frozen=True)
class Case:
    """The objects, what listens at every address, and parts of the sentences in their order; () for no problem."""

    service: Json
    says: tuple[str, ...]
    does: tuple[str, ...] = ()
    pods: tuple[Json, ...] = ()
    slices: tuple[Json, ...] = ()
    others: tuple[Json, ...] = ()
    listens: tuple[Listener, ...] | None = None
    about: str = ""


def web(**spec: Any) -> Json:
    return service("web", spec.pop("ip", "10.96.0.7"), **{"selector": WEB, "ports": PORTS, **spec})


def headless(**spec: Any) -> Json:
    return web(ip="None", **spec)


CASES = {
    "all is well": Case(web(), (), pods=(pod(),), slices=(slice_of("10.0.1.2"),), listens=at(8080)),
    "headless": Case(
        headless(),
        (),
        pods=(pod(), pod("web-1", "10.0.1.3")),
        slices=(slice_of("10.0.1.2", "10.0.1.3"),),
        listens=at(8080),
        about="It is headless: DNS answers web.ns.svc.cluster.local with the addresses of its 2 ready endpoints."
        " It has no rules, and needs none.",
    ),
    "headless, nobody ready": Case(
        headless(),
        ("Pod ns/web-0 is not ready: ContainersNotReady, so it is not an endpoint.",),
        ("nodewright why ns/web-0",),
        pods=(pod(conditions=[{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]),),
        slices=(slice_of("10.0.1.2", ready=False),),
        about="with no address, since no endpoint is ready",
    ),
    "headless without ports": Case(
        headless(ports=[]), (), pods=(pod(),), slices=(endpoint_slice("web", ["10.0.1.2"], ports=[]),), about="headless"
    ),
    "external name": Case(
        service("web", type="ExternalName", externalName="db.example.com", ports=[]),
        (),
        about="It is another name for db.example.com: DNS answers web.ns.svc.cluster.local with that name (CNAME)."
        " It has no address, no endpoints and no rules, and needs none.",
    ),
    "external name of an address": Case(
        service("web", type="ExternalName", externalName="192.0.2.7"),
        ("192.0.2.7 is an address, and a DNS name can only be another name",),
        ("EndpointSlice",),
        about="another name for 192.0.2.7",
    ),
    "external name of a Service that is not there": Case(
        service("web", type="ExternalName", externalName="db.shop.svc.cluster.local"),
        ("there is no Service shop/db",),
        ("correct externalName",),
        about="another name",
    ),
    "external name of a Service that is there": Case(
        service("web", type="ExternalName", externalName="db.shop.svc.cluster.local"),
        (),
        others=(service("db", "10.96.0.9", namespace="shop"),),
        about="another name",
    ),
    "external name of itself": Case(
        service("web", type="ExternalName", externalName="web.ns.svc.cluster.local"),
        ("never ends",),
        about="another name",
    ),
    "load balancer pending": Case(
        web(type="LoadBalancer", ports=[{**PORTS[0], "nodePort": 30080}]),
        ("no external address (kubectl shows <pending>): nothing in this cluster gives addresses",),
        (f"Until then use its NodePort 30080 on any node, such as {NODE}:30080.",),
        pods=(pod(),),
        slices=(slice_of("10.0.1.2"),),
        listens=at(8080),
    ),
    "load balancer without NodePorts": Case(
        web(type="LoadBalancer", allocateLoadBalancerNodePorts=False),
        ("nothing in this cluster gives addresses",),
        ("`kubectl -n ns port-forward service/web 80`",),
        pods=(pod(),),
        slices=(slice_of("10.0.1.2"),),
    ),
    "load balancer of a class": Case(
        web(type="LoadBalancer", loadBalancerClass="example.com/lb"),
        ("the controller of its loadBalancerClass example.com/lb has not given it one",),
        pods=(pod(),),
        slices=(slice_of("10.0.1.2"),),
    ),
    "load balancer forgotten": Case(
        web(type="LoadBalancer"),
        ("though ns/other has one",),
        ("describe service web",),
        pods=(pod(),),
        slices=(slice_of("10.0.1.2"),),
        others=(service("other", "10.96.0.8", type="LoadBalancer", lb=["203.0.113.7"]),),
    ),
    "load balancer served": Case(
        web(type="LoadBalancer", lb=["203.0.113.7"]), (), pods=(pod(),), slices=(slice_of("10.0.1.2"),)
    ),
    "no selector": Case(
        web(selector=None),
        ("It has no selector, so nothing finds its pods, and nobody has written an EndpointSlice for it.",),
        ("`kubectl -n ns set selector service web app=NAME`",),
    ),
    "no selector, slices by hand": Case(web(selector=None), (), slices=(slice_of("192.0.2.9", pods=False),)),
    "no selector, nothing ready": Case(
        web(selector=None),
        ("no endpoint in its EndpointSlices is ready",),
        slices=(slice_of("192.0.2.9", ready=False),),
    ),
    "selector that matches nothing": Case(
        web(), ("Its selector app=web matches no pod in namespace ns.",), ("get pods --show-labels",)
    ),
    "selector with a slip": Case(
        web(selector={"app": "wbe"}),
        ("Its selector app=wbe matches no pod; pod ns/web-0 has app=web.",),
        ("set selector service web app=web",),
        pods=(pod(),),
    ),
    "selector like that of no pod": Case(
        web(selector={"app": "basket"}),
        ("Its selector app=basket matches no pod in namespace ns. Pods there have: app=client; app=web.",),
        ("Correct the selector of the Service, or the labels of the pods",),
        pods=(pod(), pod("other", labels={"app": "client"})),
    ),
    "selector of another namespace": Case(
        web(),
        ("matches no pod in namespace ns, but some in shop",),
        ("Create the Service in namespace shop",),
        pods=(pod(space="shop"),),
    ),
    "pods that have ended": Case(
        web(), ("All pods with the labels app=web have ended",), pods=(pod(phase="Succeeded"), pod("b", phase="Failed"))
    ),
    "pods not ready": Case(
        web(),
        ("Pod ns/web-0 is not ready: container web CrashLoopBackOff, so it is not an endpoint.",),
        ("`nodewright why ns/web-0` says why.",),
        pods=(
            pod(
                conditions=[{"type": "Ready", "status": "False"}],
                containerStatuses=[
                    {"name": "web", "ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
                ],
            ),
            pod("web-1", "10.0.1.3"),
        ),
        slices=(slice_of("10.0.1.3"),),
    ),
    "a port's name that no container has": Case(
        web(ports=[{"port": 80, "targetPort": "http"}]),
        ("none of its containers names a port http",),
        pods=(pod(),),
        slices=(endpoint_slice("web", [], ports=[]),),
    ),
    "nobody listens there": Case(
        web(),
        ("In pod ns/web-0 nobody listens on 8080/tcp, only on 9090/tcp: connections to port 80 are refused.",),
        ('"path": "/spec/ports/0/targetPort", "value": 9090',),
        pods=(pod(),),
        slices=(slice_of("10.0.1.2"),),
        listens=at(9090),
    ),
    "nobody listens at all": Case(
        web(),
        ("In pod ns/web-0 nobody listens on 8080/tcp: connections",),
        ("Correct targetPort",),
        pods=(pod(),),
        slices=(slice_of("10.0.1.2"),),
        listens=(),
    ),
    "two pods alike are one problem": Case(
        web(),
        ("In pod ns/web-0, pod ns/web-1 nobody listens on 8080/tcp",),
        pods=(pod(), pod("web-1", "10.0.1.3")),
        slices=(slice_of("10.0.1.2", "10.0.1.3"),),
        listens=(),
    ),
    "only loopback": Case(
        headless(),
        ("nobody listens on 8080/tcp at its address: only at 127.0.0.1",),
        ("listen on all addresses",),
        pods=(pod(),),
        slices=(slice_of("10.0.1.2"),),
        listens=at(8080, address="127.0.0.1"),
        about="headless",
    ),
    "another protocol": Case(
        web(ports=[{**PORTS[0], "protocol": "UDP"}]),
        ("nobody listens on 8080/udp, only on 8080/tcp",),
        pods=(pod(),),
        slices=(slice_of("10.0.1.2", port={**_8080, "protocol": "UDP"}),),
        listens=at(8080),
    ),
    "it is not known who listens": Case(web(), (), pods=(pod(),), slices=(slice_of("10.0.1.2"),), listens=None),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_sentence_and_what_to_do(case: Case) -> None:
    nodes = [node("node1", address=NODE)]
    facts = Facts.of([case.service, *case.others], case.slices, case.pods, nodes, [])
    found = problems(case.service, facts, lambda address: case.listens, DOMAIN)
    assert len(found) == len(case.says), found
    for problem, says in zip(found, case.says, strict=True):
        assert says in problem.text and problem.text.endswith(".") and problem.reason.isalpha()
    for problem, does in zip(found, case.does, strict=False):
        assert does in problem.action
    said = about(case.service, facts, DOMAIN)
    assert (case.about in said) if case.about else not said


@pytest.mark.parametrize(
    ("listens", "address", "protocol", "wanted"),
    [
        (at(80), "10.0.0.2", "tcp", ""),
        (at(80, address="::"), "10.0.0.2", "tcp", ""),
        (at(80, address="::"), "fd00::2", "tcp", ""),
        (at(80, address="10.0.0.2"), "10.0.0.2", "tcp", ""),
        (at(80, address="::ffff:10.0.0.2"), "10.0.0.2", "tcp", ""),
        (at(80, address="10.0.0.3"), "10.0.0.2", "tcp", "nobody listens on 80/tcp at 10.0.0.2: only at 10.0.0.3"),
        (at(80), "fd00::2", "sctp", ""),
        (at(53, protocol="udp"), "10.0.0.2", "tcp", "nobody listens on 80/tcp"),
        (at(9, address="127.0.0.1"), "10.0.0.2", "tcp", "nobody listens on 80/tcp"),
        (None, "10.0.0.2", "tcp", ""),
    ],
    ids=["all", "both families", "ipv6", "its own", "mapped", "another", "sctp", "other", "loopback", "unknown"],
)
def test_who_listens(listens: tuple[Listener, ...] | None, address: str, protocol: str, wanted: str) -> None:
    assert silence(listens, address, 80, protocol) == wanted


def test_another_proxys_service_is_called_so() -> None:
    made = web()
    made["metadata"]["labels"] = {"service.kubernetes.io/service-proxy-name": "cilium"}
    assert 'leaves it to another proxy, "cilium"' in about(made, Facts(), DOMAIN)
