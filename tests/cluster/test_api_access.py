"""Authentication and authorization: certificates, tokens, OpenID Connect, RBAC, and what a node may not do."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nodelib.kube.access import ClusterAccess, load_kubeconfig
from nodelib.kube.client import ApiError, KubeClient
from tests.builders.pods import manifest
from tests.cluster.https_servers import Issuer, https, request_for
from tests.cluster.node_access import node_access
from tests.cluster.world import Object, World, holds

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

_RBAC = "rbac.authorization.k8s.io"
_CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


async def test_a_signed_certificate_is_a_login(world: World) -> None:
    """A request for a client certificate, approved and signed by the cluster: its CN is the user, its O the groups."""
    key, request = request_for("jane", "developers")
    access = await _signed(world, key, request)
    async with _client(access) as jane:
        assert await _who(jane) == ("jane", {"developers", "system:authenticated"})
        with pytest.raises(ApiError, match='User "jane" cannot list resource "pods"') as refused:
            await jane.get(world.path("pods"))
        assert refused.value.code == 403
        await _allow(world, {"kind": "Group", "name": "developers", "apiGroup": _RBAC})

        async def may_list() -> bool:
            return bool((await jane.get(world.path("pods")))["items"] == [])

        await holds(may_list, "the role reaches jane")
        with pytest.raises(ApiError, match="cannot create"):
            await jane.post(world.path("pods"), manifest("forbidden"))


async def test_a_service_account_token_is_a_login(world: World) -> None:
    """A token asked for one audience and one hour; a changed one is worth nothing."""
    path = world.path("serviceaccounts", "default") + "/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = (await world.api.post(path, asked))["status"]["token"]
    nobody = _anonymous(world)
    async with _client(replace(nobody, token=token)) as account:
        name, groups = await _who(account)
        assert name == f"system:serviceaccount:{world.namespace}:default"
        assert f"system:serviceaccounts:{world.namespace}" in groups
    head, body, signature = token.split(".")
    forged = ".".join((head, body, signature[::-1]))
    async with _client(replace(nobody, token=forged)) as account:
        with pytest.raises(ApiError) as refused:
            await _who(account)
    assert refused.value.code == 401


async def test_an_openid_connect_token_is_a_login(world: World, tmp_path: Path) -> None:
    """The API server follows its authentication file: an issuer written there is trusted without a restart."""
    file = Path(world.cluster.pki_dir, "authentication.json")
    before, issuer = file.read_text(), Issuer()
    async with https(issuer.app(), world.cluster.host_address, tmp_path) as server:
        issuer.url = server.url
        trusted = {"url": server.url, "certificateAuthority": server.authority, "audiences": ["nodewright"]}
        claims = {"username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"claim": "groups", "prefix": "oidc:"}}
        document = json.loads(before) | {"jwt": [{"issuer": trusted, "claimMappings": claims}]}
        try:
            file.write_text(json.dumps(document))
            good = issuer.token("nodewright", sub="ada", groups=["engineers"])
            async with _client(replace(_anonymous(world), token=good)) as ada:

                async def is_ada() -> bool:
                    return (await _who(ada))[0] == "oidc:ada"

                await holds(is_ada, "the token of the issuer is a login", seconds=150)
                assert "oidc:engineers" in (await _who(ada))[1]
            wrong = [
                issuer.token("another-audience", sub="ada"),
                issuer.token("nodewright", lifetime=-30, sub="ada"),
                Issuer().token("nodewright", sub="ada", iss=server.url),
            ]
            for token in wrong:
                async with _client(replace(_anonymous(world), token=token)) as impostor:
                    with pytest.raises(ApiError) as refused:
                        await _who(impostor)
                    assert refused.value.code == 401
        finally:
            file.write_text(before)


async def test_a_node_may_not_touch_what_is_another_node_s(world: World) -> None:
    """NodeRestriction and the Node authorizer: node1's own credentials."""
    elsewhere = await world.run(manifest("elsewhere", nodeName="node2"))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "unmounted"}, "stringData": {"k": "v"}}
    await world.api.post(world.path("secrets"), secret)
    async with _client(node_access(world, "node1")) as node:
        assert (await _who(node))[0] == "system:node:node1"
        with pytest.raises(ApiError, match="can only delete pods with"):
            await node.delete(world.path("pods", elsewhere["metadata"]["name"]))
        with pytest.raises(ApiError, match="is not allowed to modify node"):
            await node.patch("/api/v1/nodes/node2", {"metadata": {"labels": {"mine": "yes"}}})
        with pytest.raises(ApiError, match="is not allowed to modify labels"):
            await node.patch("/api/v1/nodes/node1", {"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}})
        with pytest.raises(ApiError, match="no relationship found between node 'node1' and this object"):
            await node.get(world.path("secrets", "unmounted"))


async def test_secrets_are_not_readable_in_the_store(world: World) -> None:
    """At rest they are encrypted: what etcd has on disk does not contain them."""
    word = f"rosebud-{world.namespace}"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "quiet"}, "stringData": {"k": word}}
    await world.api.post(world.path("secrets"), secret)
    await world.config_map("loud", k=f"open-{word}")
    stored = b"".join(path.read_bytes() for path in Path(world.cluster.dir).rglob("*.wal"))
    assert f"open-{word}".encode() in stored
    assert base64.b64encode(word.encode()) not in stored
    assert stored.count(word.encode()) == stored.count(f"open-{word}".encode())


async def _who(client: KubeClient) -> tuple[str, set[str]]:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    made = await client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    user: Object = made["status"]["userInfo"]
    return user["username"], set(user.get("groups") or ())


async def _signed(world: World, key: bytes, request: bytes) -> ClusterAccess:
    """What the cluster signs for a request that an administrator approves."""
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
        "expirationSeconds": 600,
    }
    path = f"{_CSRS}/{world.namespace}"
    made = await world.api.post(_CSRS, {"metadata": {"name": world.namespace}, "spec": spec})
    try:
        word = {"type": "Approved", "status": "True", "reason": "Test", "message": "asked for by a test"}
        await world.api.put(f"{path}/approval", {**made, "status": {"conditions": [word]}})
        certificate = b""

        async def issued() -> bytes:
            nonlocal certificate
            certificate = base64.b64decode((await world.api.get(path))["status"].get("certificate", ""))
            return certificate

        await holds(issued, "the certificate is signed")
    finally:
        await world.api.delete(path)
    return replace(_anonymous(world), cert_data=certificate, key_data=key)


async def _allow(world: World, subject: Object) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    await world.create({"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": {"name": "reader"}, "rules": rules})
    role = {"kind": "Role", "name": "reader", "apiGroup": _RBAC}
    binding = {"metadata": {"name": "reader"}, "roleRef": role, "subjects": [subject]}
    await world.create({"apiVersion": f"{_RBAC}/v1", "kind": "RoleBinding", **binding})


def _anonymous(world: World) -> ClusterAccess:
    """Access to the API server without any credentials."""
    admin = load_kubeconfig(world.cluster.admin_kubeconfig)
    return ClusterAccess(admin.server, ca_data=admin.ca_data)


@asynccontextmanager
async def _client(access: ClusterAccess) -> AsyncIterator[KubeClient]:
    client = KubeClient(access, user_agent="nodewright-tests")
    try:
        yield client
    finally:
        await client.close()
