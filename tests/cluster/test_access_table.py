"""Every endpoint, verb and identity on :10250, of upstream's kubelet and of ours in one cluster.

Takes minutes: run by hand (`pytest tests/cluster/test_access_table.py -m soak`). NODEWRIGHT_TEST_JOINED=name uses an
existing cluster whose node1 has upstream's kubelet and whose node2 has ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from controlplane.cluster.model import Cluster
from controlplane.machine.edge.namespaces import entered
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from tests.cluster.command_line import PROJECT, lent_or_raised
from tests.cluster.world import holds
from tests.unit.agent.server.access import RIGHTS, STREAMS, UNKNOWN_UPSTREAM, expected

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
]
KIND = ("--kubeadm", "--joined", "1", "--network", "kindnet", "--agent", "upstream", "--proxy", "upstream")
NAMESPACE = "who-gets-in"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
BY_ACCOUNT = [name for name in RIGHTS if name not in ("nobody", "a wrong token", "anonymous")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with lent_or_raised("NODEWRIGHT_TEST_JOINED", "taccess", *KIND, "--no-uplink", timeout=900) as found:
        yield found


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubeClient]:
    made = KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-tests")
    await made.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    yield made
    for kind in ("clusterrolebindings", "clusterroles"):
        for number in range(len(BY_ACCOUNT)):
            await made.delete(f"{RBAC}/{kind}/{NAMESPACE}-{number}")
    await made.delete(f"/api/v1/namespaces/{NAMESPACE}")
    await made.close()


async def _token(client: KubeClient, number: int, identity: str) -> str:
    """Of a new account with the rights of the identity."""
    name = f"{NAMESPACE}-{number}"
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    await client.post(accounts, {"metadata": {"name": name}})
    rules = [{"apiGroups": [""], "resources": [f"nodes/{what}"], "verbs": [verb]} for verb, what in RIGHTS[identity]]
    await client.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": name}],
    }
    await client.post(f"{RBAC}/clusterrolebindings", binding)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return str((await client.post(f"{accounts}/{name}/token", asked))["status"]["token"])


async def test_both_kubelets_let_the_same_in(
    cluster: Cluster, client: KubeClient, stats: list[tuple[str, str]]
) -> None:
    tokens = {"nobody": "", "a wrong token": "wrong"}
    for number, identity in enumerate(BY_ACCOUNT):
        tokens[identity] = await _token(client, number, identity)
    nodes = {item["metadata"]["name"]: _address(item) for item in (await client.get("/api/v1/nodes"))["items"]}

    async def authorized() -> bool:
        """The authorizer has learned of the last binding."""
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        user = f"system:serviceaccount:{NAMESPACE}:{NAMESPACE}-{len(BY_ACCOUNT) - 1}"
        what = {"verb": "get", "resource": "nodes", "subresource": "proxy", "version": "v1", "name": "node1"}
        spec = {"user": user, "resourceAttributes": what}
        answer = await client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {**review, "spec": spec})
        return bool(answer["status"]["allowed"])

    await holds(authorized, "the rights are known")
    rows = _ask(cluster, {"nodes": nodes, "tokens": tokens})
    wrong = [row for row in rows if row[4] != expected(row[1], row[2], row[3], upstream=row[0] == "node1")]
    assert wrong == []
    upstream, ours = ({tuple(row[1:4]): row[4] for row in rows if row[0] == node} for node in ("node1", "node2"))
    stricter = [key for key, said in upstream.items() if said != ours[key]]
    assert {key[2] for key in stricter} <= {*STREAMS, *UNKNOWN_UPSTREAM}
    stats.append(("endpoint x verb x identity, two kubelets", f"{len(upstream)}, ours stricter in {len(stricter)}"))


def _ask(cluster: Cluster, asked: dict[str, Any]) -> list[list[Any]]:
    line = entered(cluster.namespace("node2", "net"), (sys.executable, "-m", "tests.cluster.access_probe"))
    done = subprocess.run(
        line, input=json.dumps(asked), capture_output=True, text=True, timeout=900, cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[list[Any]] = json.loads(done.stdout)
    return found


def _address(node: dict[str, Any]) -> str:
    return next(str(one["address"]) for one in node["status"]["addresses"] if one["type"] == "InternalIP")
