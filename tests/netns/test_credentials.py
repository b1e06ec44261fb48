"""TLS bootstrap and rotation against a real API server and the real signer, with certificates that live for seconds."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.build import credentials
from agent.build.credentials import CLIENT, SERVER, Credentials, build_certificates, find_credentials
from agent.certificates.edge.certificate_store import read_leaf
from agent.config.parse import parse
from agent.settings import Settings
from nodelib.clock import SystemClock
from nodelib.errors import Permanent
from nodelib.kube.access import load_kubeconfig, save_kubeconfig
from nodelib.kube.client import ApiUnreachable, KubeClient
from tests.netns import api_server
from tests.netns.api_server import ApiServer, run_inside
from tests.waiting import until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]

LIFE = 5  # seconds that a certificate lives
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RIGHTS = {
    "bootstrap": ("system:node-bootstrapper", "system:bootstrappers"),
    "approve": ("system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers"),
    "renew": ("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    folder = tmp_path_factory.mktemp("certificates")
    with api_server.running(folder, [], signing=f"{LIFE}s") as server:
        run_inside(server.netns, lambda: _allow(server))
        yield server


async def _allow(server: ApiServer) -> None:
    """What kubeadm's init allows to bootstrap tokens and nodes."""
    admin = KubeClient(server.access("admin"), user_agent="test")
    for name, (role, group) in RIGHTS.items():
        subject = {"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"}
        ref = {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
        body = {"metadata": {"name": name}, "subjects": [subject], "roleRef": ref}
        await admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body)
    await admin.close()


class Place:
    """The files of one node."""

    def __init__(self, folder: Path, server: ApiServer, node: str) -> None:
        self.folder, self.server, self.node = folder, server, node
        self.kubeconfig = str(folder / "kubelet.conf")
        self.bootstrap(server.tokens["bootstrap"])

    def bootstrap(self, token: str, **changes: Any) -> None:
        access = replace(self.server.access("bootstrap"), token=token, **changes)
        save_kubeconfig(str(self.folder / "bootstrap.conf"), access)

    def settings(self, text: str = "") -> Settings:
        config = self.folder / "config.yaml"
        head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nrotateCertificates: true\n"
        config.write_text(head + text)
        return parse(
            [
                f"--config={config}",
                f"--kubeconfig={self.kubeconfig}",
                f"--bootstrap-kubeconfig={self.folder}/bootstrap.conf",
                f"--cert-dir={self.folder}/pki",
                f"--hostname-override={self.node}",
            ]
        )

    async def found(self, text: str = "") -> Credentials:
        return await find_credentials(self.settings(text), SystemClock(), user_agent="test")


@pytest.fixture
def place(tmp_path: Path, cluster: ApiServer, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, cluster, request.node.originalname.replace("_", "-")[5:40].strip("-"))


def test_a_token_becomes_a_certificate_of_the_node(place: Place) -> None:
    async def work() -> None:
        found = await place.found()
        client = KubeClient(found.access, user_agent="test")
        me = await client.post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
        )
        await client.close()
        assert me["status"]["userInfo"]["username"] == f"system:node:{place.node}"
        assert "system:nodes" in me["status"]["userInfo"]["groups"]

    run_inside(place.server.netns, work)
    assert load_kubeconfig(place.kubeconfig).cert_file == str(place.folder / "pki/kubelet-client-current.pem")
    files = [*(place.folder / "pki").iterdir(), Path(place.kubeconfig)]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert not (place.folder / "pki/kubelet-client.key.tmp").exists()


def test_the_agent_may_run_while_it_bootstraps(place: Place) -> None:
    """On a control plane that joins, the API server to ask is a static pod that the agent itself must start."""

    async def work() -> None:
        found = await find_credentials(place.settings(), SystemClock(), user_agent="test", in_background=True)
        client = KubeClient(found.access, user_agent="test")
        with pytest.raises(ApiUnreachable):
            await client.get("/version")
        with pytest.raises(ApiUnreachable):
            await anext(client.stream("/api/v1/nodes", {}))
        certificates = build_certificates(
            found, place.settings(), SystemClock(), client, lambda: None, client.reconnect
        )
        task = asyncio.create_task(certificates.tasks()[CLIENT]())
        try:
            await until(lambda: certificates.keepers[CLIENT].pair is not None)
            assert (await client.get("/version"))["major"]
        finally:
            task.cancel()
            await client.close()

    run_inside(place.server.netns, work)


def test_it_is_renewed_before_it_ends_and_used_at_once(place: Place) -> None:
    async def work() -> None:
        found = await place.found()
        client = KubeClient(found.access, user_agent="test")
        certificates = build_certificates(
            found, place.settings(), SystemClock(), client, lambda: None, client.reconnect
        )
        keeper = certificates.keepers[CLIENT]
        task = asyncio.create_task(keeper.run())
        try:
            end = time.time() + 2.2 * LIFE
            while time.time() < end:  # longer than any one certificate lives, and no call fails
                await client.get("/version")
                await asyncio.sleep(0.25)
            assert keeper.renewals >= 2, keeper.waiting
            assert keeper.pair is not None and keeper.pair.leaf.not_after > time.time()
        finally:
            task.cancel()
            await client.close()

    run_inside(place.server.netns, work)


def test_an_expired_certificate_is_bootstrapped_again(place: Place) -> None:
    async def work() -> None:
        await place.found()
        before = os.readlink(place.folder / "pki/kubelet-client-current.pem")
        await until(lambda: credentials.unusable(place.kubeconfig, time.time()), LIFE + 10)
        assert "has expired" in credentials.unusable(place.kubeconfig, time.time())
        await place.found()
        assert os.readlink(place.folder / "pki/kubelet-client-current.pem") != before

    run_inside(place.server.netns, work)


def test_a_wrong_token_says_so(place: Place) -> None:
    place.bootstrap("nobody-knows-this")

    async def work() -> None:
        with pytest.raises(Permanent, match="kubeadm token create"):
            await place.found()

    run_inside(place.server.netns, work)
    assert not Path(place.kubeconfig).exists()


def test_a_wrong_authority_says_so_and_is_waited_for(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.bootstrap(place.server.tokens["bootstrap"], insecure=False)

    async def work() -> None:
        with pytest.raises(TimeoutError), caplog.at_level(logging.WARNING):
            await asyncio.wait_for(place.found(), 1.5)

    run_inside(place.server.netns, work)
    assert "certificate authority in the kubeconfig did not sign it" in caplog.text


def test_clocks_that_disagree_are_named(place: Place) -> None:
    class Ahead(SystemClock):
        def now(self) -> float:
            return time.time() + 3600

    async def work() -> None:
        with pytest.raises(Permanent, match="clock is ahead"):
            await find_credentials(place.settings(), Ahead(), user_agent="test")

    run_inside(place.server.netns, work)


def test_the_serving_certificate_waits_for_approval_and_says_so(place: Place) -> None:
    async def work() -> None:
        admin = KubeClient(place.server.access("admin"), user_agent="test")
        found = await place.found("serverTLSBootstrap: true\n")
        client = KubeClient(found.access, user_agent="test")
        addresses = [{"type": "InternalIP", "address": "10.89.250.7"}, {"type": "Hostname", "address": place.node}]
        node = await client.post("/api/v1/nodes", {"metadata": {"name": place.node}})
        node["status"]["addresses"] = addresses
        settings = place.settings("serverTLSBootstrap: true\n")
        certificates = build_certificates(found, settings, SystemClock(), client, lambda: node, client.reconnect)
        keeper = certificates.keepers[SERVER]
        task = asyncio.create_task(keeper.run())
        try:
            await until(lambda: keeper.waiting is not None and keeper.waiting.needs_approval)
            assert "waits for approval" in certificates.conditions()[0].message
            shown = certificates.conditions()[0]
            assert (shown.status, shown.reason) == ("False", "WaitingForApproval")
            name = shown.message.rsplit(" ", 1)[-1]
            asked = await admin.get(f"{CSRS}/{name}")
            approval = {"type": "Approved", "status": "True", "reason": "Test", "message": "yes"}
            asked["status"] = {"conditions": [approval]}
            await admin.put(f"{CSRS}/{name}/approval", asked)
            await until(lambda: keeper.pair is not None)
            assert certificates.conditions()[0].status == "True"
            leaf = read_leaf(base64.b64decode((await admin.get(f"{CSRS}/{name}"))["status"]["certificate"]))
            assert leaf.subject.addresses == ("10.89.250.7",) and leaf.subject.dns_names == (place.node,)
        finally:
            task.cancel()
            await client.close()
            await admin.close()

    run_inside(place.server.netns, work)
