"""Volumes and configurations of pods with a real API server (Node authorizer, NodeRestriction) and real mounts."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2

from agent.build.volumes import BuiltVolumes, build_volumes
from agent.common.model.pod_settings import NodeContext, PodDefaults
from agent.common.model.pods import ImageFacts, Pod
from agent.containers.model import ContainerInputs, PreparedPod
from agent.containers.work.configs import CgroupFacts
from agent.images.model.pulls import SecretSource
from agent.images.work.pull_secrets import PullSecrets, UnreadSecrets
from agent.resources.plan.cgroups import Policy
from agent.resources.plan.container_limits import Machine
from agent.volumes.work.manager import VolumeManager
from nodelib.clock import SystemClock
from nodelib.errors import NodewrightError, Permanent, Temporary
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.tasks import cancel_and_wait
from tests.builders import pods
from tests.fakes.signer import Signer, matches, number, refused
from tests.fakes.userns import user_namespaces
from tests.fakes.volumes import FakeCsi
from tests.netns import api_server
from tests.netns.api_server import ApiServer, run_inside
from tests.netns.mount_namespace import isolated

CERTIFICATES = "/apis/certificates.k8s.io/v1"

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts and network namespaces"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server.running(tmp_path_factory.mktemp("api"), ["n1", "n2"]) as found:
        yield found


class ShiftedClock(SystemClock):
    """The time of day `shift` seconds from now; whoever sleeps looks often what time it is."""

    shift = 0.0

    def now(self) -> float:
        return super().now() + self.shift

    def steady(self) -> float:
        return super().steady() + self.shift

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, 0.2))


class World:
    """An administrator, and the volumes of node n1 in a root directory of their own."""

    def __init__(self, server: ApiServer, root: Path, namespace: str) -> None:
        self.admin = KubeClient(server.access("admin"), user_agent="admin")
        self.node = KubeClient(server.access("n1"), user_agent="node")
        self.namespace = namespace
        self.root = root
        self.notified: list[str] = []
        self.warned: list[tuple[str, str]] = []
        self.clock = ShiftedClock()
        self.node_uid = ""
        self.built = self.restarted()
        self._tasks = [asyncio.create_task(work(), name=name) for name, work in self.built.tasks()]

    @property
    def volumes(self) -> VolumeManager:
        return self.built.manager

    def restarted(self) -> BuiltVolumes:
        """As a fresh agent on the same disk."""
        settings = PodDefaults(
            "n1", root_dir=str(self.root), pod_logs_dir=str(self.root / "logs"), cluster_dns=("10.96.0.10",)
        )
        facts = NodeContext(("10.89.0.11",), {"cpu": "2", "memory": "1Gi"})
        return build_volumes(
            self.node,
            settings,
            clock=self.clock,
            node=lambda: replace(facts, uid=self.node_uid),
            cgroups=CgroupFacts(Policy(), Machine(1 << 30, 1)),
            csi=FakeCsi(),
            user_namespaces=user_namespaces(),
            notify=self.notified.append,
            warn=lambda pod, reason, message: self.warned.append((reason, message)),
        )

    async def start(self) -> None:
        base = f"/api/v1/namespaces/{self.namespace}"
        await self.admin.post("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        await self.admin.post(f"{base}/serviceaccounts", {"metadata": {"name": "default"}})
        await self.config_map("kube-root-ca.crt", {"ca.crt": "CA"})

    async def close(self) -> None:
        await cancel_and_wait(*self._tasks)
        await self.built.close()
        await self.admin.close()
        await self.node.close()

    async def config_map(self, name: str, data: dict[str, str]) -> None:
        body = {"metadata": {"name": name}, "data": data}
        await self.admin.post(f"/api/v1/namespaces/{self.namespace}/configmaps", body)

    async def register(self) -> None:
        """As the agent does with its Node."""
        await self.node.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
        self.node_uid = (await self.node.get("/api/v1/nodes/n1"))["metadata"]["uid"]

    async def certificate_request(self, pod: Pod, number: int = 1) -> Json:
        """The pod's request of that number, as soon as it is made."""
        path = f"{CERTIFICATES}/namespaces/{self.namespace}/podcertificaterequests"
        while True:
            found = [one for one in (await self.admin.get(path))["items"] if one["spec"]["podUID"] == pod.uid]
            if len(found) >= number:
                found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
                return dict(found[number - 1])
            await asyncio.sleep(0.05)

    async def answer(self, request: Json, status: Json) -> None:
        """As the signer does."""
        path = f"{CERTIFICATES}/namespaces/{self.namespace}/podcertificaterequests/{request['metadata']['name']}"
        await self.admin.put(f"{path}/status", {**request, "status": status})

    async def secret(self, name: str, data: dict[str, bytes]) -> None:
        coded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        await self.admin.post(
            f"/api/v1/namespaces/{self.namespace}/secrets", {"metadata": {"name": name}, "data": coded}
        )

    async def pod(self, name: str, container: Json | None = None, node: str = "n1", **spec: Any) -> Pod:
        names = [one["name"] for one in spec.get("volumes", ())]
        box = pods.container(**container) if container else pods.user_of(*names)
        body = pods.pod_json(name, box, nodeName=node, **spec)
        return Pod(await self.admin.post(f"/api/v1/namespaces/{self.namespace}/pods", body))

    async def services(self, pod: Pod) -> tuple[Json, ...]:
        """Once the API's own is among them, which a fresh server makes some time after it is ready."""
        async with asyncio.timeout(60):
            while True:
                found = await self.built.configs.services(pod)
                if any(service["metadata"]["name"] == "kubernetes" for service in found):
                    return found
                await asyncio.sleep(0.05)

    async def config(self, pod: Pod, **fields: Any) -> Any:
        """The message that the runtime would get."""
        configs = self.built.configs
        services = await self.services(pod)
        prepared = PreparedPod(await self.volumes.mount(pod), services=services)
        sandbox = await configs.sandbox_config(pod, prepared, 0)
        api_pb2.PodSandboxConfig(**sandbox)
        inputs = ContainerInputs(0, ("10.244.1.5",), ImageFacts("img"), "sha256:1", **fields)
        made = await configs.container_config(pod, pod.spec["containers"][0], prepared, inputs)
        return api_pb2.ContainerConfig(**made)


async def until(condition: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition never came true"
        await asyncio.sleep(0.02)


def run_scenario(server: ApiServer, root: Path, namespace: str, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World(server, root, namespace)
        try:
            await world.start()
            await scenario(world)
        finally:
            await world.close()

    run_inside(server.netns, run)


@isolated
def test_a_pod_as_the_server_makes_it(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.config_map("settings", {"color": "blue"})
        await world.secret("keys", {"pass": b"s3cret"})
        env = [
            {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}},
            {"name": "PASS", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "pass"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        ]
        pod = await world.pod("web", {"env": env, "command": ["echo", "$(COLOR)"]})
        config = await world.config(pod)
        assert list(config.command) == ["echo", "blue"]
        values = {item.key: item.value for item in config.envs}
        assert (values["PASS"], values["CPU"]) == ("s3cret", "2")
        assert values["KUBERNETES_SERVICE_HOST"] == "10.96.0.1"
        paths = {mount.container_path: mount.host_path for mount in config.mounts}
        token_dir = Path(paths["/var/run/secrets/kubernetes.io/serviceaccount"])
        assert (token_dir / "ca.crt").read_text() == "CA"
        assert (token_dir / "namespace").read_text() == world.namespace
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
        answer = await world.admin.post(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {**review, "spec": {"token": (token_dir / "token").read_text()}},
        )
        assert answer["status"]["authenticated"]
        assert answer["status"]["user"]["extra"]["authentication.kubernetes.io/pod-uid"] == [pod.uid]
        assert "10.244.1.5\tweb\n" in Path(paths["/etc/hosts"]).read_text()
        await world.volumes.release(pod.uid)
        assert os.listdir(world.root / "pods") == []

    run_scenario(server, tmp_path, "whole", scenario)


@isolated
def test_changes_arrive_in_volumes(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.config_map("settings", {"color": "blue"})
        volumes = [
            {"name": "conf", "configMap": {"name": "settings"}},
            {"name": "late", "secret": {"secretName": "late", "optional": True}},
            {
                "name": "meta",
                "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
            },
        ]
        pod = await world.pod("web", volumes=volumes)
        made = await world.volumes.mount(pod)
        shown = Path(made["conf"].path, "color")
        assert shown.read_text() == "blue"
        began = time.monotonic()
        await world.admin.patch(f"/api/v1/namespaces/{world.namespace}/configmaps/settings", {"data": {"color": "red"}})
        await until(lambda: pod.uid in world.notified)
        await world.volumes.refresh(pod)
        assert shown.read_text() == "red"
        assert time.monotonic() - began < 5
        world.notified.clear()
        await world.secret("late", {"k": b"v"})
        await until(lambda: pod.uid in world.notified)
        await world.volumes.refresh(pod)
        assert Path(made["late"].path, "k").read_text() == "v"
        labelled = Pod({**pod.raw, "metadata": {**pod.meta, "labels": {"new": "1"}}})
        await world.volumes.refresh(labelled)
        assert Path(made["meta"].path, "labels").read_text() == 'new="1"'

    run_scenario(server, tmp_path, "changes", scenario)


@isolated
def test_a_pod_waits_for_what_is_missing(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        pod = await world.pod("web", volumes=[{"name": "conf", "configMap": {"name": "settings"}}])
        with pytest.raises(
            Temporary, match=f'configmap "settings" not found. Create ConfigMap {world.namespace}/settings'
        ):
            await world.volumes.mount(pod)
        await world.config_map("settings", {"a": "1"})
        await until(lambda: pod.uid in world.notified)
        mounted = await world.volumes.mount(pod)
        assert (Path(mounted["conf"].path) / "a").read_text() == "1"

    run_scenario(server, tmp_path, "waits", scenario)


@isolated
def test_objects_of_other_nodes_stay_closed(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.volumes.work.watched_objects._GET_TIMEOUT", 0.5)

    async def scenario(world: World) -> None:
        await world.secret("keys", {"pass": b"x"})
        pod = await world.pod("web", node="n2", volumes=[{"name": "s", "secret": {"secretName": "keys"}}])
        with pytest.raises(Temporary, match=r"secrets .*forbidden|no relationship"):
            await world.volumes.mount(pod)

    run_scenario(server, tmp_path, "closed", scenario)


@isolated
def test_a_restarted_agent_keeps_what_is_mounted(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        pod = await world.pod(
            "web",
            {"volumeMounts": [{"name": "e", "mountPath": "/e", "subPath": "a"}]},
            volumes=[{"name": "e", "emptyDir": {}}],
        )
        await world.config(pod)
        before = await world.volumes.mount(pod)
        Path(before["e"].path, "kept").write_text("x")
        again = world.restarted()
        services = asyncio.create_task(again.objects.tasks()[0][1]())
        try:
            after = await again.manager.mount(pod)
            assert after == before
            assert Path(after["e"].path, "kept").exists()
            assert await again.manager.pods_on_disk() == [pod.uid]
            await again.manager.release(pod.uid)
            assert await again.manager.pods_on_disk() == []
        finally:
            services.cancel()
            await again.close()

    run_scenario(server, tmp_path, "restart", scenario)


@isolated
def test_container_errors_say_what_to_do(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        missing = {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k"}}}]}
        with pytest.raises(Permanent, match=r'secret "none" not found\. Create Secret'):
            await world.config(await world.pod("env", missing))
        escape = {"volumeMounts": [{"name": "e", "mountPath": "/e", "subPath": "out/x"}]}
        pod = await world.pod("sub", escape, volumes=[{"name": "e", "emptyDir": {}}])
        volume = (await world.volumes.mount(pod))["e"].path
        Path(volume, "out").symlink_to("/etc")
        with pytest.raises(Permanent, match='subPath for volumeMount "e" of container "main"'):
            await world.config(pod)
        root = {"securityContext": {"runAsNonRoot": True}}
        with pytest.raises(Permanent, match="image will run as root"):
            await world.config(await world.pod("root", root))

    run_scenario(server, tmp_path, "errors", scenario)


@isolated
def test_trust_bundles_by_name_and_signer(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        sources = [{"clusterTrustBundle": {"name": "roots", "path": "roots.pem", "optional": True}}]
        pod = await world.pod("web", volumes=[{"name": "ca", "projected": {"sources": sources}}])
        made = await world.volumes.mount(pod)
        assert Path(made["ca"].path, "roots.pem").read_text() == ""

    run_scenario(server, tmp_path, "trust", scenario)


@isolated
def test_pod_certificates(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.volumes.work.pod_certificates._GET_TIMEOUT", 2.0)

    async def scenario(world: World) -> None:
        await world.register()
        signer = Signer()
        asked = {"signerName": "example.com/s", "keyType": "ECDSAP384", "maxExpirationSeconds": 7200}
        source = {**asked, "keyPath": "key", "certificateChainPath": "chain", "userAnnotations": {"a.io/k": "v"}}
        volume = {"name": "tls", "projected": {"sources": [{"podCertificate": source}]}}
        pod = await world.pod("web", volumes=[volume], securityContext={"fsGroup": 5})
        with pytest.raises(Temporary, match="waits for its signer"):
            await world.volumes.mount(pod)
        request = await world.certificate_request(pod)
        assert request["spec"]["unverifiedUserAnnotations"] == {"a.io/k": "v"}
        assert request["metadata"]["ownerReferences"][0]["uid"] == pod.uid
        await world.answer(request, signer.issued(request, time.time()))
        await until(lambda: pod.uid in world.notified)
        shown = Path((await world.volumes.mount(pod))["tls"].path)
        key, chain = (shown / "key").read_bytes(), (shown / "chain").read_bytes()
        assert matches(key, chain) and number(chain) == "1"
        found = (shown / "key").stat()
        assert (found.st_mode & 0o777, found.st_gid) == (0o640, 5)

        world.notified.clear()
        world.clock.shift = 3600 + 300
        request = await world.certificate_request(pod, 2)
        world.clock.shift = 0
        await world.answer(request, signer.issued(request, time.time()))
        await until(lambda: pod.uid in world.notified)
        await world.volumes.refresh(pod)
        key, chain = (shown / "key").read_bytes(), (shown / "chain").read_bytes()
        assert matches(key, chain) and number(chain) == "2"

        other = await world.pod("other", volumes=[volume])
        task = asyncio.create_task(world.volumes.mount(other))
        request = await world.certificate_request(other)
        await world.answer(request, refused("Denied", "UnsupportedKeyType", "ED25519", time.time()))
        with pytest.raises(NodewrightError, match=r"not issued yet|permanently denied"):
            await task
        await until(lambda: world.warned)
        with pytest.raises(Permanent, match='permanently denied: reason="UnsupportedKeyType"'):
            await world.volumes.mount(other)
        assert [reason for reason, _ in world.warned] == ["Denied"]

    run_scenario(server, tmp_path, "certificates", scenario)


@isolated
def test_pull_secrets(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.secret("pull", {".dockerconfigjson": b'{"auths":{"reg.io":{"username":"me","password":"x"}}}'})
        pod = await world.pod("web", imagePullSecrets=[{"name": "pull"}, {"name": "gone"}])
        secrets = PullSecrets(world.built.objects, world.built.warnings, UnreadSecrets())
        (found,) = await secrets.pull_auth(pod, "reg.io/a:1")
        assert found.auth == {"username": "me", "password": "x"}
        assert isinstance(found.source, SecretSource) and len(found.source.hash) == 64
        assert await secrets.pull_auth(pod, "other.io/a:1") == []
        assert [reason for reason, _ in world.warned] == ["FailedToRetrieveImagePullSecret"]

    run_scenario(server, tmp_path, "pull", scenario)
