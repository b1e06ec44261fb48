"""What a Service is and what is wrong with it, each in one sentence with what to do about it. Pure.

The counterpart is what a colleague says who has looked at `kubectl describe service`, the pods, their listeners and the
rules of the nodes.
"""

from __future__ import annotations

import difflib
import ipaddress
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence

from cli.explain.balancer import is_ours, lack, runs, unannounced
from cli.explain.dns_names import service_of
from cli.explain.endpoints import chosen_pods, left_out, living_pods, selector_of, silent_endpoints
from cli.explain.facts import Facts, balancer_addresses, key, node_addresses, ready_addresses, title
from cli.explain.listening import Listening, open_ports
from cli.explain.problems import Problem, kubectl, ours
from nodelib.json_values import Json

PROXY_NAME = "service.kubernetes.io/service-proxy-name"
_SHOWN = 5
_COMPARED = 200  # different values of labels that are looked at for the one that was meant
_LONGEST = 200  # characters of values that are compared
_COMPARISONS = 100  # Services for which that is done
_LOOKED_AT = 5000  # pods of a namespace, or with a label of the selector


def is_headless(service: Json) -> bool:
    return (service.get("spec") or {}).get("clusterIP") == "None"


def is_external_name(service: Json) -> bool:
    return (service.get("spec") or {}).get("type") == "ExternalName"


def about(service: Json, facts: Facts, domain: str) -> str:
    """What kind of Service it is where that means that no rules serve it; "" for an ordinary one."""
    spec = service.get("spec") or {}
    namespace, name = key(service)
    own = f"{name}.{namespace}.svc.{domain}"
    if is_external_name(service):
        return (
            f"It is another name for {spec.get('externalName')}: DNS answers {own} with that name (CNAME)."
            " It has no address, no endpoints and no rules, and needs none."
        )
    if is_headless(service):
        count = len(ready_addresses(facts.slices_of(service)))
        what = "the address of its 1 ready endpoint" if count == 1 else f"the addresses of its {count} ready endpoints"
        what = "no address, since no endpoint is ready" if not count else what
        return f"It is headless: DNS answers {own} with {what}. It has no rules, and needs none."
    other = (service["metadata"].get("labels") or {}).get(PROXY_NAME)
    if other is not None:
        return f'Its label {PROXY_NAME} leaves it to another proxy, "{other}": the nodes\' own proxy writes no rules.'
    return ""


def problems(service: Json, facts: Facts, listening: Listening, domain: str) -> list[Problem]:
    """Everything that keeps clients from being served, wherever they are."""
    if is_external_name(service):
        return list(_external_name(service, facts, domain))
    return [
        *_endpoints(service, facts),
        *_silent(service, facts, listening),
        *pending(service, facts),
        *unannounced(service, facts),
    ]


def unwritten(nodes: Iterable[str], service: Json) -> Problem:
    """Nodes whose kernels have no rules for a Service that should have some."""
    namespace, name = key(service)
    return Problem(
        "NoRules",
        f"The kernel of {', '.join(nodes)} has no rules for {namespace}/{name}: the proxy there has not written any.",
        f"{ours('status')} shows whether the proxy runs; {ours('doctor')} checks its node.",
    )


def _external_name(service: Json, facts: Facts, domain: str) -> Iterator[Problem]:
    namespace, name = key(service)
    to = str((service.get("spec") or {}).get("externalName") or "")
    try:
        ipaddress.ip_address(to.rstrip("."))
    except ValueError:
        pass
    else:
        yield Problem(
            "NotAName",
            f"{to} is an address, and a DNS name can only be another name for a name: clients do not find it.",
            "Make it a Service without a selector, with an EndpointSlice that has the address.",
        )
        return
    inside = service_of(to, domain)
    if inside == (namespace, name):
        yield Problem("OwnName", f"{to} is its own name, so looking it up never ends.", "Give another externalName.")
    elif inside is not None and facts.service(*inside) is None:
        yield Problem(
            "NoSuchService",
            f"{to} is a name of this cluster, and there is no Service {inside[0]}/{inside[1]}.",
            "Create that Service, or correct externalName.",
        )


def pending(service: Json, facts: Facts) -> Iterator[Problem]:
    """Why a load balancer has no address yet, or not the one that it requests."""
    spec = service.get("spec") or {}
    status = (service.get("status") or {}).get("loadBalancer") or {}
    ours_to_give = runs(facts) and is_ours(service)
    lacks = lack(service, facts) if ours_to_give else None
    if spec.get("type") != "LoadBalancer" or (status.get("ingress") and lacks is None):
        return
    namespace, name = key(service)
    port: Json = next(iter(spec.get("ports") or []), {})
    node_port = port.get("nodePort")
    node = next((address for one in facts.nodes for address in node_addresses(one)), "")
    if node_port and node:
        meanwhile = f"Until then use its NodePort {node_port} on any node, such as {node}:{node_port}."
    else:
        forward = kubectl(namespace, "port-forward", f"service/{name}", str(port.get("port", "")))
        meanwhile = f"Until then use {forward}."
    if lacks is not None:
        has = ", ".join(balancer_addresses(service))
        has = (
            f"It has {has} and not what it asks for" if has else "It has no external address (kubectl shows <pending>)"
        )
        yield Problem("NoLoadBalancer", f"{has}: {lacks.note}", "" if status.get("ingress") else meanwhile)
        return
    if ours_to_give:
        yield Problem(
            "NoLoadBalancer",
            "It has no external address yet (kubectl shows <pending>): the load balancer daemons have not written it.",
            f"If that does not change within seconds: {ours('status')} shows whether they run, loadbalancer.log of a"
            f" node what they do. {meanwhile}",
        )
        return
    has_one = facts.once("have addresses", lambda: [one for one in facts.services if balancer_addresses(one)][:1])
    if spec.get("loadBalancerClass"):
        yield Problem(
            "NoLoadBalancer",
            f"It has no external address (kubectl shows <pending>): the controller of its loadBalancerClass"
            f" {spec['loadBalancerClass']} has not given it one.",
            f"Start that controller, or read its log. {meanwhile}",
        )
    elif has_one:
        events = kubectl(namespace, "describe", "service", name)
        yield Problem(
            "NoLoadBalancer",
            f"It has no external address yet (kubectl shows <pending>), though {title(has_one[0])} has one:"
            " the load balancer controller has not served it.",
            f"The events of {events} may say why. {meanwhile}",
        )
    else:
        yield Problem(
            "NoLoadBalancer",
            "It has no external address (kubectl shows <pending>): nothing in this cluster gives addresses to Services"
            " of type LoadBalancer.",
            "Install a controller that does, such as MetalLB, or make the cluster anew: `nodewright down`, then"
            " `nodewright up` without --no-load-balancer, --routed and --kubeadm."
            f" {meanwhile}",
        )


def _endpoints(service: Json, facts: Facts) -> Iterator[Problem]:
    """Why it has no endpoints or lacks some."""
    namespace, name = key(service)
    selector = selector_of(service)
    if not selector:
        if not facts.slices_of(service):
            choose = kubectl(namespace, "set", "selector", "service", name, "app=NAME")
            yield Problem(
                "NoEndpointSlice",
                "It has no selector, so nothing finds its pods, and nobody has written an EndpointSlice for it.",
                f"Give it the labels of its pods by {choose}, or create an EndpointSlice.",
            )
        elif not ready_addresses(facts.slices_of(service)):
            label = f"kubernetes.io/service-name={name}"
            yield Problem(
                "NoReadyEndpoint",
                "It has no selector, and no endpoint in its EndpointSlices is ready.",
                f"{kubectl(namespace, 'get', 'endpointslices', '-l', label)} shows them;"
                " whoever wrote them keeps them up to date.",
            )
        return
    wanted = ",".join(f"{label}={value}" for label, value in selector.items())
    if not chosen_pods(service, facts):
        yield _no_pods(service, facts, wanted)
        return
    if not living_pods(service, facts):
        yield Problem(
            "PodsEnded",
            f"All pods with the labels {wanted} have ended, so it has no endpoints.",
            f"{kubectl(namespace, 'get', 'pods', '-l', wanted)} shows how; start new ones.",
        )
        return
    listed, count = left_out(service, facts, _SHOWN)
    for one in listed:
        said = f"Pod {one.pod} {one.why}, so it is not an endpoint."
        action = f"{ours('why', one.pod)} says why."
        if one.reason == "NoSuchPort":
            action = "Name a port of the pod's containers in targetPort of the Service, or write its number there."
        yield Problem(one.reason, said, action)
    if count > _SHOWN:
        more = ours("why", "-n", namespace)
        yield Problem(
            "PodNotReady",
            f"{count - _SHOWN} more pods of it are not endpoints.",
            f"{more} lists pods with a problem.",
        )


def _no_pods(service: Json, facts: Facts, wanted: str) -> Problem:
    namespace, name = key(service)
    selector = selector_of(service)
    alike = facts.pods_like(selector)[:_LOOKED_AT]
    elsewhere = (pod for pod in alike if key(pod)[0] != namespace and selector.items() <= _labels(pod).items())
    if (one := next(elsewhere, None)) is not None:
        there = key(one)[0]
        return Problem(
            "NoPodSelected",
            f"Its selector {wanted} matches no pod in namespace {namespace}, but some in {there}: a Service finds only"
            " pods of its own namespace.",
            f"Create the Service in namespace {there}, or the pods in {namespace}.",
        )
    labels_of = frozenset(selector)
    others = facts.once(("selectable", namespace, labels_of), lambda: _selectable(facts, namespace, sorted(selector)))
    near = _close(" ".join(selector[label] for label in sorted(selector)), others, facts)
    if meant := near or (list(others) if len(others) == 1 else []):
        labels, pod = others[meant[0]]
        choose = kubectl(namespace, "set", "selector", "service", name, labels)
        return Problem(
            "NoPodSelected",
            f"Its selector {wanted} matches no pod; pod {title(pod)} has {labels}.",
            f"If that pod is meant: {choose}.",
        )
    if others:
        known = sorted(labels for labels, _ in others.values())
        listed = "; ".join(known[:_SHOWN]) + (f"; and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "")
        return Problem(
            "NoPodSelected",
            f"Its selector {wanted} matches no pod in namespace {namespace}. Pods there have: {listed}.",
            "Correct the selector of the Service, or the labels of the pods that are meant.",
        )
    shown = kubectl(namespace, "get", "pods", "--show-labels")
    return Problem(
        "NoPodSelected",
        f"Its selector {wanted} matches no pod in namespace {namespace}.",
        f"{shown} shows which labels there are; a Deployment with 0 replicas has no pods.",
    )


def _selectable(facts: Facts, namespace: str, wanted: Sequence[str]) -> dict[str, tuple[str, Json]]:
    """What the namespace's pods have for these labels: ("app=web", one of the pods) by the values."""
    found: dict[str, tuple[str, Json]] = {}
    for pod in facts.pods_in(namespace)[:_LOOKED_AT]:
        labels = pod["metadata"].get("labels") or {}
        if all(label in labels for label in wanted):
            text = ",".join(f"{label}={labels[label]}" for label in wanted)
            found.setdefault(" ".join(labels[label] for label in wanted), (text, pod))
            if len(found) == _COMPARED:
                break
    return found


def _close(values: str, others: Iterable[str], facts: Facts) -> list[str]:
    """The one of `others` that was meant. Comparing takes quadratic time, so it is done for a few Services only."""
    if len(values) > _LONGEST or next(facts.once("comparisons", itertools.count)) >= _COMPARISONS:
        return []
    return difflib.get_close_matches(values, [one for one in others if len(one) <= 2 * _LONGEST], n=1)


def _silent(service: Json, facts: Facts, listening: Listening) -> Iterator[Problem]:
    """Endpoints where nobody listens on the port; those with the same listeners are one problem."""
    namespace, name = key(service)
    alike: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for one in silent_endpoints(service, facts, listening):
        alike.setdefault((one.why.replace(one.address, "its address"), one.entry), []).append((one.name, one.address))
    for (why, entry), who in alike.items():
        names = ", ".join(one for one, _ in who[:_SHOWN]) + (
            f" and {len(who) - _SHOWN} more" if len(who) > _SHOWN else ""
        )
        port = (service["spec"].get("ports") or [{}])[entry]
        protocol = str(port.get("protocol") or "TCP").lower()
        others = open_ports(listening(who[0][1]) or (), protocol)
        if "only at" in why:
            action = "Let the program listen on all addresses (0.0.0.0 or ::), not on a loopback address."
        elif len(others) == 1 and selector_of(service):
            patch = json.dumps([{"op": "replace", "path": f"/spec/ports/{entry}/targetPort", "value": others[0]}])
            change = kubectl(namespace, "patch", "service", name, "--type=json", "-p", patch)
            action = f"If {others[0]} is the right port: {change}."
        else:
            action = "Correct targetPort in the Service, or the port that the program listens on."
        yield Problem("NobodyListens", f"In {names} {why}: connections to port {port.get('port')} are refused.", action)


def _labels(pod: Json) -> dict[str, str]:
    return dict(pod["metadata"].get("labels") or {})
