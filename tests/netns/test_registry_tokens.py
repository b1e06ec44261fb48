"""Tokens of service accounts for credential provider plugins, from a real API server with the rights of a node."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.common.model.pods import Pod
from agent.images.edge.service_accounts import ServiceAccounts
from agent.images.model.pulls import Account, AccountSource
from nodelib.json_values import Json
from nodelib.kube.client import ApiError, KubeClient
from tests.netns import api_server
from tests.netns.api_server import ApiServer, run_inside
from tests.waiting import until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]

PODS, ACCOUNTS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
# What an administrator allows the nodes to ask for (KEP-4412).
AUDIENCES: Json = {
    "metadata": {"name": "audiences"},
    "rules": [{"verbs": ["request-serviceaccounts-token-audience"], "apiGroups": [""], "resources": ["reg.io"]}],
}
BINDING: Json = {
    "metadata": {"name": "audiences"},
    "subjects": [{"kind": "Group", "name": "system:nodes", "apiGroup": "rbac.authorization.k8s.io"}],
    "roleRef": {"kind": "ClusterRole", "name": "audiences", "apiGroup": "rbac.authorization.k8s.io"},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server.running(tmp_path_factory.mktemp("tokens"), ["n1", "n2"]) as server:
        yield server


def test_a_node_gets_a_token_for_its_pod_and_the_registry(cluster: ApiServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        admin, node, other = (KubeClient(cluster.access(name), user_agent="test") for name in ("admin", "n1", "n2"))
        try:
            account = {"metadata": {"name": "builder", "annotations": {"reg.io/role": "r"}}}
            made = await admin.post(ACCOUNTS, account)
            await admin.post(f"{RBAC}/clusterroles", AUDIENCES)
            await admin.post(f"{RBAC}/clusterrolebindings", BINDING)
            spec = {"nodeName": "n1", "serviceAccountName": "builder", "containers": [{"name": "a", "image": "i"}]}
            pod = Pod(await admin.post(PODS, {"metadata": {"name": "web"}, "spec": spec}))
            accounts = ServiceAccounts(node, time.time)
            # The node may read the account once its authorizer knows of the pod.
            await until(lambda: _readable(accounts))
            found = await accounts.account("default", "builder")
            assert found == Account(AccountSource("default", "builder", made["metadata"]["uid"]), {"reg.io/role": "r"})
            token = await accounts.token(pod, found, "reg.io")
            claims = _claims(token.text)
            assert claims["aud"] == ["reg.io"]
            assert claims["kubernetes.io"]["pod"] == {"name": "web", "uid": pod.uid}
            assert 3000 < token.seconds <= 3700
            for client, audience, uid in ((other, "reg.io", ""), (node, "other.io", ""), (node, "reg.io", "gone")):
                source = AccountSource("default", "builder", uid or found.source.uid)
                with pytest.raises(ApiError):
                    await ServiceAccounts(client, time.time).token(pod, Account(source, {}), audience)
        finally:
            for client in (admin, node, other):
                await client.close()

    run_inside(cluster.netns, scenario)


async def _readable(accounts: ServiceAccounts) -> bool:
    try:
        await accounts.account("default", "builder")
    except ApiError:
        return False
    return True


def _claims(token: str) -> Json:
    part = token.split(".")[1]
    found: Json = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found
