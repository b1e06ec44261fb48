"""ContainerConfigs and VolumeManager together: whole configurations, and that no manifest makes them crash."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace
from typing import Any

import pytest
from cri_api.v1 import api_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.common.model.pod_settings import NodeContext, PodDefaults
from agent.common.model.pods import ImageFacts, Kind, Pod
from agent.common.work.pod_warnings import PodWarnings
from agent.containers.model import ContainerInputs, PreparedPod
from agent.containers.plan import container as container_plan
from agent.containers.plan import env as env_plan
from agent.containers.work.configs import CgroupFacts, ContainerConfigDeps, ContainerConfigs
from agent.devices.model.devices import DeviceGrant
from agent.resources.plan.cgroups import Policy
from agent.resources.plan.container_limits import Machine
from agent.volumes.model.sources import CONFIG_MAP, SECRET, ObjectRef
from agent.volumes.plan import volumes as volume_plans
from agent.volumes.work.manager import VolumeManager, VolumeManagerDeps
from nodelib.errors import NodewrightError, Permanent, Temporary
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.builders.services import service
from tests.fakes.userns import FakeMappings, user_namespaces
from tests.fakes.volumes import FakeCertificates, FakeCsi, FakeDisk, FakeLocal, FakeObjects

CM, SEC = ObjectRef(CONFIG_MAP, "settings"), ObjectRef(SECRET, "keys")
KUBERNETES = service("kubernetes", "10.96.0.1", namespace="default", ports=[{"port": 443}])
FACTS = NodeContext(
    ("10.89.0.11",),
    {"cpu": "2", "memory": "1Gi"},
    recursive_read_only_handlers=frozenset({""}),
    user_namespace_handlers=frozenset({""}),
)


DEVICE_MOUNT: Json = {"container_path": "/opt/driver", "host_path": "/opt/driver", "readonly": True}


class World:
    def __init__(self) -> None:
        self.objects, self.disk, self.facts = FakeObjects(), FakeDisk(), FACTS
        self.objects.all_services = [KUBERNETES]
        self.objects.found = {CM: {"data": {"a": "1"}}, SEC: {"data": {"k": "dg=="}}}
        self.warned: list[tuple[str, str]] = []
        self.warnings = PodWarnings(lambda _, reason, message: self.warned.append((reason, message)))
        defaults = PodDefaults("n1", cluster_dns=("10.96.0.10",))
        cgroups = CgroupFacts(Policy(), Machine(1 << 30, 1))
        self.mappings = FakeMappings()
        users = user_namespaces(self.mappings)
        self.maker = ContainerConfigs(
            defaults, ContainerConfigDeps(self.objects, self.disk, lambda: self.facts, self.warnings, cgroups, users)
        )
        self.volumes = VolumeManager(
            defaults.root_dir,
            VolumeManagerDeps(self.objects, FakeCertificates(), self.disk, FakeCsi(), FakeLocal(), lambda: FACTS),
        )

    async def configs(
        self, subject: Pod, ips: tuple[str, ...] = ("10.244.1.5",), target_id: str = "", handler: str = ""
    ) -> list[Any]:
        """The runtime's own messages: the sandbox's configuration, then those of all containers."""
        services = await self.maker.services(subject)
        prepared = PreparedPod(await self.volumes.mount(subject), services=services, handler=handler)
        messages: list[Any] = [api_pb2.PodSandboxConfig(**await self.maker.sandbox_config(subject, prepared, 0))]
        for kind, one in subject.containers():
            target = target_id if kind is Kind.EPHEMERAL else ""
            inputs = ContainerInputs(0, ips, ImageFacts("i"), "r", target, DeviceGrant(mounts=(DEVICE_MOUNT,)))
            config = await self.maker.container_config(subject, one, prepared, inputs)
            messages.append(api_pb2.ContainerConfig(**config))
        return messages


@pytest.fixture
def world() -> World:
    return World()


async def test_a_plain_pod(world: World) -> None:
    sandbox, config = await world.configs(pod())
    assert sandbox.dns_config.servers == ["10.96.0.10"]
    targets = {mount.container_path: mount.host_path for mount in config.mounts}
    assert targets["/etc/hosts"] == "/var/lib/kubelet/pods/0b5c5f5e-1/etc-hosts"
    message = targets["/dev/termination-log"]
    assert message.startswith("/var/lib/kubelet/pods/0b5c5f5e-1/containers/main/")
    assert len(message.rpartition("/")[2]) == 8
    assert world.disk.texts[message] == ""
    assert "/var/log/pods/shop_web_0b5c5f5e-1/main" in world.disk.directories
    assert {item.key: item.value for item in config.envs}["KUBERNETES_SERVICE_HOST"] == "10.96.0.1"


@pytest.mark.parametrize(("count", "apart"), [(100, False), (100_000, True)])
async def test_a_long_command_is_put_together_in_a_thread(
    world: World, monkeypatch: pytest.MonkeyPatch, count: int, apart: bool
) -> None:
    """A megabyte of references took 0.3 s of the event loop at each start."""
    work, ran_in = container_plan.container_config, list[int]()

    def noted(*args: Any, **fields: Any) -> Json:
        ran_in.append(threading.get_ident())
        return work(*args, **fields)

    monkeypatch.setattr(container_plan, "container_config", noted)
    _, config = await world.configs(pod(container(command=["sh"], args=["$$" * count])))
    assert config.args == ["$" * count]
    assert (ran_in[0] != threading.get_ident()) is apart


@pytest.mark.parametrize(("where", "name"), [(env_plan, "environment"), (volume_plans, "plan_volumes")])
async def test_what_users_chose_the_size_of_is_not_worked_on_on_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    """A ConfigMap with 60,000 keys, or annotations in hundreds of files, held up all other pods for seconds."""
    work, ran_in = getattr(where, name), list[int]()

    def noted(*args: Any) -> Any:
        ran_in.append(threading.get_ident())
        return work(*args)

    monkeypatch.setattr(where, name, noted)
    await world.configs(pod())
    assert ran_in and threading.get_ident() not in ran_in


async def test_with_selinux_the_runtime_labels_the_files_of_the_agent(world: World) -> None:
    _, config = await world.configs(pod())
    assert not any(mount.selinux_relabel for mount in config.mounts)
    world.facts = replace(FACTS, selinux=True)
    _, config = await world.configs(pod())
    assert {mount.container_path for mount in config.mounts if mount.selinux_relabel} == {
        "/etc/hosts",
        "/dev/termination-log",
    }


async def test_every_attempt_has_its_own_message_file(world: World) -> None:
    (_, one), (_, two) = await world.configs(pod()), await world.configs(pod())
    paths = [
        mount.host_path for config in (one, two) for mount in config.mounts if "termination" in mount.container_path
    ]
    assert len(set(paths)) == 2


async def test_no_hosts_file_before_there_is_an_address(world: World) -> None:
    _, config = await world.configs(pod(), ips=())
    assert "/etc/hosts" not in {mount.container_path for mount in config.mounts}


async def test_host_network_shows_the_nodes_hosts(world: World) -> None:
    _, config = await world.configs(pod(hostNetwork=True), ips=())
    path = {mount.container_path: mount.host_path for mount in config.mounts}["/etc/hosts"]
    assert world.disk.texts[path].endswith("NODE\n")


async def test_ephemeral_container_joins_its_target(world: World) -> None:
    messages = await world.configs(pod(ephemeralContainers=[container("debug")]), target_id="abc")
    options = messages[-1].linux.security_context.namespace_options
    assert (options.pid, options.target_id) == (api_pb2.TARGET, "abc")


async def test_file_key_ref(world: World) -> None:
    source = {"valueFrom": {"fileKeyRef": {"volumeName": "e", "path": "f", "key": "K"}}}
    subject = pod(container(env=[{"name": "A", **source}]), volumes=[{"name": "e", "emptyDir": {}}])
    world.disk.texts["/var/lib/kubelet/pods/0b5c5f5e-1/volumes/e/f"] = "K='v'\n"
    _, config = await world.configs(subject)
    assert {item.key: item.value for item in config.envs}["A"] == "v"
    without = pod(container(env=[{"name": "A", **source}]))
    with pytest.raises(Permanent, match="referenced by FileKeyRef"):
        await world.configs(without)


async def test_static_pods_start_without_an_api_server(world: World) -> None:
    world.objects.down = True
    _, config = await world.configs(pod(source="file"))
    assert list(config.envs) == []
    with pytest.raises(Temporary):
        await world.configs(pod())


async def test_sub_path_errors_keep_the_nodes_secrets(world: World) -> None:
    world.disk.refuse_sub_paths = True
    mounts = [{"name": "e", "mountPath": "/e", "subPath": "x"}]
    with pytest.raises(Permanent, match='failed to prepare subPath for volumeMount "e"') as raised:
        await world.configs(pod(container(volumeMounts=mounts), volumes=[{"name": "e", "emptyDir": {}}]))
    assert "secret detail" not in str(raised.value)


async def test_only_bidirectional_sub_paths_send_mounts_back_to_their_volume(world: World) -> None:
    modes = (None, "None", "HostToContainer", "Bidirectional")
    mounts = [{"name": "e", "mountPath": f"/{m}", "subPath": "x", "mountPropagation": m} for m in modes]
    await world.configs(pod(container(volumeMounts=mounts), volumes=[{"name": "e", "emptyDir": {}}]))
    assert sorted(target.rpartition("/")[2] for target in world.disk.bound) == ["0", "1", "2", "3"]
    assert [target.rpartition("/")[2] for target in world.disk.peers] == ["3"]


async def test_each_warning_is_emitted_once(world: World) -> None:
    subject = pod(dnsConfig={"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3"]})
    for _ in range(3):
        await world.configs(subject)
    assert [reason for reason, _ in world.warned] == ["DNSConfigForming"]
    world.warnings.drop_pod(subject.uid)
    await world.configs(subject)
    assert [reason for reason, _ in world.warned] == ["DNSConfigForming"] * 2


async def test_a_pod_with_its_own_users(world: World) -> None:
    subject = pod(
        container(volumeMounts=[{"name": "e", "mountPath": "/e"}]),
        initContainers=[container("one")],
        ephemeralContainers=[container("debug")],
        volumes=[{"name": "e", "emptyDir": {}}],
        hostUsers=False,
    )
    sandbox, *containers = await world.configs(subject)
    users = sandbox.linux.security_context.namespace_options.userns_options
    mapping = api_pb2.IDMapping(host_id=65536, container_id=0, length=65536)
    assert (users.mode, list(users.uids), list(users.gids)) == (api_pb2.POD, [mapping], [mapping])
    assert len(containers) == 3
    for config in containers:
        assert config.linux.security_context.namespace_options.userns_options == users
        assert {"/etc/hosts", "/dev/termination-log", "/opt/driver"} <= {one.container_path for one in config.mounts}
        for mount in config.mounts:
            assert (list(mount.uidMappings), list(mount.gidMappings)) == ([mapping], [mapping])
    again, *_ = await world.configs(subject)
    assert again.linux.security_context.namespace_options.userns_options == users


@pytest.mark.parametrize("spec", [{}, {"hostUsers": True}])
async def test_a_pod_with_the_nodes_users_says_nothing_of_them(world: World, spec: Json) -> None:
    for config in await world.configs(pod(**spec)):
        assert not config.linux.security_context.namespace_options.HasField("userns_options")
        assert not [one for one in getattr(config, "mounts", ()) if one.uidMappings or one.gidMappings]
    assert not world.mappings.texts


async def test_own_users_are_refused_where_the_handler_has_none_and_never_ignored(world: World) -> None:
    with pytest.raises(Permanent, match='RuntimeClass handler "kata" does not support user namespaces') as refusal:
        await world.configs(pod(hostUsers=False), handler="kata")
    assert "runc 1.2" in refusal.value.action and "shop/web" in refusal.value.obj
    assert not world.mappings.texts


FULL: Json = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "labels": {"a": "1"}, "annotations": {"b": "2"}},
    "spec": {
        "dnsPolicy": "ClusterFirst",
        "dnsConfig": {"nameservers": ["1.1.1.1"], "options": [{"name": "ndots", "value": "2"}]},
        "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["x"]}],
        "securityContext": {"runAsUser": 1, "fsGroup": 2, "sysctls": [{"name": "kernel.x", "value": "1"}]},
        "imagePullSecrets": [{"name": "p"}],
        "volumes": [
            {"name": "e", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "c", "configMap": {"name": "settings", "items": [{"key": "a", "path": "p", "mode": 256}]}},
            {
                "name": "p",
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "t", "expirationSeconds": 600}},
                        {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                        {"clusterTrustBundle": {"signerName": "s", "labelSelector": {}, "path": "r", "optional": True}},
                    ]
                },
            },
            {"name": "h", "hostPath": {"path": "/tmp", "type": ""}},
        ],
        "containers": [
            {
                "name": "main",
                "image": "i",
                "command": ["$(A)"],
                "env": [
                    {"name": "A", "value": "x"},
                    {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
                    {"name": "C", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}},
                ],
                "envFrom": [{"prefix": "P", "configMapRef": {"name": "settings"}}],
                "ports": [{"containerPort": 80, "hostPort": 81}],
                "resources": {"limits": {"cpu": "1", "memory": "1Mi"}, "requests": {"cpu": "1m"}},
                "securityContext": {"capabilities": {"add": ["X"]}, "seccompProfile": {"type": "RuntimeDefault"}},
                "lifecycle": {"preStop": {"exec": {"command": ["x"]}}, "stopSignal": "SIGTERM"},
                "volumeMounts": [
                    {"name": "e", "mountPath": "/e", "subPathExpr": "$(A)"},
                    {"name": "c", "mountPath": "/c", "readOnly": True, "recursiveReadOnly": "IfPossible"},
                ],
            }
        ],
    },
}
JUNK = st.sampled_from(
    [None, True, -1, 2**70, 1.5, "", "x", "\0", "$(A)", "..", [], [None], ["x"], {}, {"x": None}, {"name": "e"}]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path] if path else []
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


PLACES = [path for path in places(FULL) if path[0] == "spec" and len(path) > 1]


async def test_the_full_pod_itself_is_accepted(world: World) -> None:
    assert len(await world.configs(Pod(FULL))) == 2


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(PLACES), JUNK), min_size=1, max_size=3))
async def test_malformed_pods_are_refused_with_a_reason_and_never_crash(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    raw = copy.deepcopy(FULL)
    for path, junk in changes:
        at = raw
        try:
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = junk
        except (KeyError, IndexError, TypeError):
            continue
    subject = Pod(raw, "file")
    try:
        await World().configs(subject)
    except NodewrightError as error:
        assert error.message
    except (TypeError, ValueError) as error:
        # The one place that may still refuse a value is the runtime's own message class.
        assert _from_protobuf(error), repr(error)


def _from_protobuf(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_name == "configs"
