"""What the API server has, as etcd keeps it: (key, object). Pure.

Two contents. `spread`: many policies, each of which selects all pods of its namespace; the client's label `role` says
which namespaces let it in. `on_one`: all policies select one pod, and the last in the order of names lets the client
in at the ports of `tests/bench/flow_peer.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from nodelib.json_values import Json

NODE = "bench-node"
OF_NAMESPACE = 5  # pods
ROLES = 10  # namespaces with equal numbers modulo this let in the same role; they are a multiple of it
PORT = 80  # UDP
FLOW_PORT = 8090
CLIENT = "10.244.200.1"
CLIENT_PATH = "/api/v1/namespaces/clients/pods/client"
_FIRST = int(ip_address("10.244.0.10"))
_TIME = "2026-01-01T00:00:00Z"
Stored = Iterator[tuple[str, Json]]


def address(pod: int) -> str:
    return str(ip_address(_FIRST + pod))


def policy_path(number: int, spaces: int) -> str:
    return f"/apis/networking.k8s.io/v1/namespaces/n{number % spaces}/networkpolicies/q{number:04}"


def ingress(number: int, port: int = PORT) -> list[Json]:
    """The rules of one policy of `spread`: a few ports for peers of each kind, the client among them."""
    role = {"matchLabels": {"role": f"r{number % ROLES}"}}
    clients = {"namespaceSelector": {"matchLabels": {"team": "clients"}}, "podSelector": role}
    peers: list[Json] = [
        {"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": [f"p{number % 7}"]}]}},
        {"namespaceSelector": {"matchLabels": {"team": f"t{number % 10}"}}},
        {"ipBlock": {"cidr": f"10.{number % 200}.0.0/16"}},
        clients,
    ]
    ports: list[Json] = [{"protocol": "UDP", "port": port}, {"protocol": "UDP", "port": 8000, "endPort": 8100}]
    return [{"from": peers, "ports": ports}]


def spread(policies: int, pods: int) -> Stored:
    spaces = pods // OF_NAMESPACE
    yield from _clients()
    for number in range(spaces):
        yield _namespace(f"n{number}", {"team": f"t{number % 10}"}, number)
    for number in range(pods):
        labels = {"app": f"p{number % 7}"}
        yield _pod(f"p{number}", f"n{number // OF_NAMESPACE}", address(number), labels, number)
    for number in range(policies):
        yield _policy(f"q{number:04}", f"n{number % spaces}", number, {"podSelector": {}, "ingress": ingress(number)})


def on_one(policies: int) -> Stored:
    yield from _clients()
    yield _namespace("n0", {"team": "t0"}, 0)
    yield _pod("p0", "n0", address(0), {"app": "p0"}, 0)
    selected: Json = {"podSelector": {"matchLabels": {"app": "p0"}}}
    for number in range(policies - 1):
        others = [{"ipBlock": {"cidr": f"192.0.2.{number % 256}/32"}}]
        yield _policy(f"q{number:04}", "n0", number, {**selected, "ingress": [{"from": others}]})
    if policies:
        clients = [{"namespaceSelector": {"matchLabels": {"team": "clients"}}}]
        ports = [{"protocol": kind, "port": FLOW_PORT} for kind in ("TCP", "UDP")]
        yield _policy("z", "n0", policies, {**selected, "ingress": [{"from": clients, "ports": ports}]})


def pod_addresses(pods: int) -> Sequence[str]:
    return [address(number) for number in range(pods)]


def _clients() -> Stored:
    yield _namespace("clients", {"team": "clients"}, 10_000)
    yield _pod("client", "clients", CLIENT, {"role": "r0"}, 10_000)


def _namespace(name: str, labels: dict[str, str], index: int) -> tuple[str, Json]:
    metadata = _meta(name, "namespac", index, labels={**labels, "kubernetes.io/metadata.name": name})
    status = {"phase": "Active"}
    found = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    return f"/registry/namespaces/{name}", {**found, "spec": {"finalizers": ["kubernetes"]}, "status": status}


def _policy(name: str, space: str, index: int, spec: Json) -> tuple[str, Json]:
    metadata = _meta(name, "netpolic", index, namespace=space)
    obj = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata}
    return f"/registry/networkpolicies/{space}/{name}", {**obj, "spec": {**spec, "policyTypes": ["Ingress"]}}


def _pod(name: str, space: str, ip: str, labels: dict[str, str], index: int) -> tuple[str, Json]:
    main = {
        "name": "main",
        "image": "example/main:1",
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
    }
    spec = {
        "nodeName": NODE,
        "serviceAccountName": "default",
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {},
        "containers": [main],
    }
    status = {
        "phase": "Running",
        "qosClass": "BestEffort",
        "hostIP": "192.0.2.7",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": _TIME,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _TIME}],
    }
    metadata = _meta(name, "podpodpo", index, namespace=space, labels=labels)
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
    return f"/registry/pods/{space}/{name}", obj


def _meta(name: str, kind: str, index: int, **more: object) -> Json:
    uid = f"{kind.encode().hex()[:8]}-0000-4000-8000-{index:012x}"
    return {"name": name, "uid": uid, "creationTimestamp": _TIME, **more}
