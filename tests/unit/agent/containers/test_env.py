"""The environment of containers from every source."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from agent.common.model.pod_settings import NodeContext
from agent.containers.plan.env import (
    EnvSources,
    environment,
    file_references,
    parse_env_file,
    references,
    service_variables,
)
from agent.volumes.model.sources import CONFIG_MAP, SECRET, ObjectRef
from nodelib.errors import Invalid, NotFound, Permanent
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.builders.services import service

KUBERNETES = service(
    "kubernetes", "10.96.0.1", namespace="default", ports=[{"name": "https", "port": 443, "protocol": "TCP"}]
)
DB = service(
    "my-db", "10.96.1.1", namespace="shop", ports=[{"port": 5432}, {"name": "admin-ui", "port": 80, "protocol": "UDP"}]
)
HEADLESS = service("quiet", "None", namespace="shop", ports=[{"port": 1}])
NODE = NodeContext(host_ips=("10.89.0.11", "fd00::11"), allocatable={"cpu": "2", "memory": "4Gi"})
CM = ObjectRef(CONFIG_MAP, "settings")
SEC = ObjectRef(SECRET, "keys")
OBJECTS: dict[ObjectRef, Json | None] = {
    CM: {"data": {"color": "blue", "b-y": "2"}},
    SEC: {"data": {"pass": base64.b64encode(b"s3cret").decode(), "raw": base64.b64encode(b"\xff\xfe").decode()}},
}


def env_of(
    *variables: Json, env_from: list[Json] | None = None, services: list[Json] | None = None, **kw: Any
) -> dict[str, str]:
    made = container(env=list(variables), envFrom=env_from or [], **kw)
    sources = EnvSources(OBJECTS, services or [], ("10.244.1.5", "fd01::5"), NODE, {("vol", "f.env"): "K='v'\n"})
    return environment(pod(made), made, sources)


def value_from(name: str, **source: Json) -> Json:
    return {"name": name, "valueFrom": source}


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        pytest.param({"name": "X", "value": "plain"}, "plain", id="value"),
        pytest.param({"name": "X"}, "", id="no value"),
        pytest.param(value_from("X", fieldRef={"fieldPath": "metadata.name"}), "web", id="name"),
        pytest.param(value_from("X", fieldRef={"fieldPath": "metadata.namespace"}), "shop", id="namespace"),
        pytest.param(value_from("X", fieldRef={"fieldPath": "metadata.uid"}), "0b5c5f5e-1", id="uid"),
        pytest.param(value_from("X", fieldRef={"fieldPath": "spec.nodeName"}), "n1", id="node"),
        pytest.param(value_from("X", fieldRef={"fieldPath": "spec.serviceAccountName"}), "default", id="account"),
        pytest.param(value_from("X", fieldRef={"fieldPath": "status.podIP"}), "10.244.1.5", id="podIP"),
        pytest.param(value_from("X", fieldRef={"fieldPath": "status.podIPs"}), "10.244.1.5,fd01::5", id="podIPs"),
        pytest.param(value_from("X", fieldRef={"fieldPath": "status.hostIP"}), "10.89.0.11", id="hostIP"),
        pytest.param(value_from("X", fieldRef={"fieldPath": "status.hostIPs"}), "10.89.0.11,fd00::11", id="hostIPs"),
        pytest.param(value_from("X", configMapKeyRef={"name": "settings", "key": "color"}), "blue", id="configMap"),
        pytest.param(value_from("X", secretKeyRef={"name": "keys", "key": "pass"}), "s3cret", id="secret"),
        pytest.param(value_from("X", resourceFieldRef={"resource": "limits.cpu"}), "2", id="limit from allocatable"),
        pytest.param(value_from("X", resourceFieldRef={"resource": "requests.cpu"}), "0", id="request not set"),
        pytest.param(value_from("X", fileKeyRef={"volumeName": "vol", "path": "f.env", "key": "K"}), "v", id="file"),
    ],
)
def test_sources(variable: Json, expected: str) -> None:
    assert env_of(variable) == {"X": expected}


@pytest.mark.parametrize(
    "variable",
    [
        pytest.param(value_from("X", configMapKeyRef={"name": "gone", "key": "a", "optional": True}), id="object"),
        pytest.param(value_from("X", configMapKeyRef={"name": "settings", "key": "a", "optional": True}), id="key"),
        pytest.param(value_from("X", secretKeyRef={"name": "gone", "key": "a", "optional": True}), id="secret"),
        pytest.param(
            value_from("X", fileKeyRef={"volumeName": "vol", "path": "n", "key": "K", "optional": True}), id="file"
        ),
    ],
)
def test_optional_sources_leave_the_variable_out(variable: Json) -> None:
    assert env_of(variable) == {}


def test_a_wrong_key_is_told_beside_those_that_there_are() -> None:
    with pytest.raises(NotFound) as missing:
        env_of(value_from("X", configMapKeyRef={"name": "settings", "key": "a"}))
    assert missing.value.action.startswith("ConfigMap settings has ") and "color" in missing.value.action
    with pytest.raises(NotFound) as missing:
        env_of(value_from("X", secretKeyRef={"name": "keys", "key": "a"}))
    assert " has " not in missing.value.action


@pytest.mark.parametrize(
    ("variable", "error", "message"),
    [
        pytest.param(
            value_from("X", configMapKeyRef={"name": "gone", "key": "a"}),
            NotFound,
            'configmap "gone" not found',
            id="object",
        ),
        pytest.param(
            value_from("X", configMapKeyRef={"name": "settings", "key": "a"}),
            NotFound,
            "couldn't find key a in ConfigMap shop/settings",
            id="key",
        ),
        pytest.param(
            value_from("X", secretKeyRef={"name": "gone", "key": "a"}), NotFound, 'secret "gone" not found', id="secret"
        ),
        pytest.param(value_from("X", secretKeyRef={"name": "keys", "key": "raw"}), Permanent, "not UTF-8", id="binary"),
        pytest.param(
            value_from("X", fieldRef={"fieldPath": "spec.color"}), Invalid, "unsupported fieldPath", id="field"
        ),
        pytest.param(
            value_from("X", resourceFieldRef={"resource": "limits.gpu"}), Invalid, "unsupported", id="resource"
        ),
        pytest.param(value_from("X", newRef={"a": 1}), Invalid, "names no source", id="unknown source"),
    ],
)
def test_errors_name_what_is_missing(variable: Json, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        env_of(variable)


def test_env_from_with_prefix_then_env_over_it() -> None:
    made = env_of(
        {"name": "color", "value": "red"},
        {"name": "both", "value": "$(color)-$(P_color)-$(P_pass)"},
        env_from=[
            {"configMapRef": {"name": "settings"}},
            {"prefix": "P_", "configMapRef": {"name": "settings"}},
            {"prefix": "Q_", "configMapRef": {"name": "gone", "optional": True}},
        ],
    )
    assert made == {"color": "red", "b-y": "2", "P_color": "blue", "P_b-y": "2", "both": "red-blue-$(P_pass)"}


def test_values_refer_to_earlier_variables_and_to_services() -> None:
    made = env_of(
        {"name": "LATE", "value": "$(EARLY)"},
        {"name": "EARLY", "value": "1"},
        {"name": "HOST", "value": "$(MY_DB_SERVICE_HOST)"},
        services=[DB],
    )
    assert (made["LATE"], made["HOST"]) == ("$(EARLY)", "10.96.1.1")


def test_service_variables() -> None:
    assert service_variables([KUBERNETES, DB, HEADLESS], "shop", True) == {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "KUBERNETES_SERVICE_PORT_HTTPS": "443",
        "KUBERNETES_PORT": "tcp://10.96.0.1:443",
        "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
        "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
        "KUBERNETES_PORT_443_TCP_PORT": "443",
        "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1",
        "MY_DB_SERVICE_HOST": "10.96.1.1",
        "MY_DB_SERVICE_PORT": "5432",
        "MY_DB_SERVICE_PORT_ADMIN_UI": "80",
        "MY_DB_PORT": "tcp://10.96.1.1:5432",
        "MY_DB_PORT_5432_TCP": "tcp://10.96.1.1:5432",
        "MY_DB_PORT_5432_TCP_PROTO": "tcp",
        "MY_DB_PORT_5432_TCP_PORT": "5432",
        "MY_DB_PORT_5432_TCP_ADDR": "10.96.1.1",
        "MY_DB_PORT_80_UDP": "udp://10.96.1.1:80",
        "MY_DB_PORT_80_UDP_PROTO": "udp",
        "MY_DB_PORT_80_UDP_PORT": "80",
        "MY_DB_PORT_80_UDP_ADDR": "10.96.1.1",
    }


@pytest.mark.parametrize(
    ("namespace", "links", "hosts"),
    [
        pytest.param("shop", True, {"KUBERNETES_SERVICE_HOST", "MY_DB_SERVICE_HOST"}, id="own and master"),
        pytest.param("shop", False, {"KUBERNETES_SERVICE_HOST"}, id="no links: master only"),
        pytest.param("other", True, {"KUBERNETES_SERVICE_HOST"}, id="another namespace"),
    ],
)
def test_which_services(namespace: str, links: bool, hosts: set[str]) -> None:
    found = service_variables([KUBERNETES, DB], namespace, links)
    assert {name for name in found if name.endswith("_SERVICE_HOST")} == hosts


def test_a_pod_can_do_without_the_services_of_its_namespace() -> None:
    made = container("main")
    sources = EnvSources(OBJECTS, [KUBERNETES, DB], (), NODE)
    with_links, without = (environment(pod(made, enableServiceLinks=links), made, sources) for links in (True, False))
    assert {"MY_DB_SERVICE_HOST", "KUBERNETES_SERVICE_HOST"} <= with_links.keys()
    assert "MY_DB_SERVICE_HOST" not in without and "KUBERNETES_SERVICE_HOST" in without


def test_ipv6_service_is_bracketed() -> None:
    found = service_variables([service("six", "fd00::1", namespace="shop", ports=[{"port": 80}])], "shop", True)
    assert found["SIX_PORT"] == "tcp://[fd00::1]:80"


def test_references() -> None:
    made = container(
        env=[
            value_from("A", configMapKeyRef={"name": "c"}),
            value_from("B", secretKeyRef={"name": "s"}),
            {"name": "C"},
        ],
        envFrom=[{"configMapRef": {"name": "d"}}, {"secretRef": {"name": "t"}}],
    )
    wanted = {ObjectRef(CONFIG_MAP, "c"), ObjectRef(CONFIG_MAP, "d"), ObjectRef(SECRET, "s"), ObjectRef(SECRET, "t")}
    assert references(made) == wanted
    assert file_references(container(env=[value_from("A", fileKeyRef={"volumeName": "v", "path": "p"})])) == {
        ("v", "p")
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("K='v'", "v", id="simple"),
        pytest.param("# c\n\n  K='v' # why\n", "v", id="comments and blanks"),
        pytest.param("A='1\n2'\nK='x\ny'\n", "x\ny", id="several lines"),
        pytest.param("K= 'v'", "", id="blank before the value is empty"),
        pytest.param("OTHER='v'", "", id="not there"),
        pytest.param("K='a\x0bb\x85c\u2028d'", "a\x0bb\x85c\u2028d", id="lines end at line feeds only"),
        pytest.param("A='1'\r\nK='v'\r\n", "v", id="lines of DOS"),
        pytest.param("K='a=b $(C)'", "a=b $(C)", id="taken literally"),
    ],
)
def test_env_file(text: str, expected: str) -> None:
    assert parse_env_file(text, "K") == expected


@pytest.mark.parametrize("text", ["K", "=x", "K ='v'", "K=v", "K='v", "K='v'x"])
def test_env_file_refuses(text: str) -> None:
    with pytest.raises(Invalid, match="line 1"):
        parse_env_file(text, "K")


def test_variables_that_double_each_other_are_refused() -> None:
    # Each is twice the one before: with 40 of them the agent would need 64 TB. Upstream's kubelet has no limit.
    doubling = [{"name": f"V{i}", "value": f"$(V{i - 1})$(V{i - 1})"} for i in range(1, 25)]
    with pytest.raises(Invalid, match="make more than"):
        env_of({"name": "V0", "value": "x" * 64}, *doubling)


@pytest.mark.parametrize("origin", ["configMapRef", "secretRef"])
def test_the_same_object_under_many_prefixes_is_refused(origin: str) -> None:
    objects: dict[ObjectRef, Json | None] = {
        CM: {"data": {"k": "x" * (1 << 20)}},
        SEC: {"data": {"k": base64.b64encode(b"x" * (1 << 20)).decode()}},
    }
    name = {"configMapRef": "settings", "secretRef": "keys"}[origin]
    made = container(envFrom=[{"prefix": f"P{i}_", origin: {"name": name}} for i in range(20)])
    with pytest.raises(Invalid, match="make more than"):
        environment(pod(made), made, EnvSources(objects))


def test_very_many_variables_are_refused() -> None:
    """Each takes the agent some microseconds: one ConfigMap under forty prefixes took it three seconds."""
    objects: dict[ObjectRef, Json | None] = {CM: {"data": {f"{number:x}": "" for number in range(5000)}}}
    made = container(envFrom=[{"prefix": f"P{i}_", "configMapRef": {"name": "settings"}} for i in range(20)])
    with pytest.raises(Invalid, match="make more than"):
        environment(pod(made), made, EnvSources(objects))


def test_services_with_very_many_ports_are_refused() -> None:
    """They took the agent seconds, and hundreds of megabytes, at each start of a container in their namespace."""
    ports = [{"name": f"p{number}", "port": number} for number in range(1, 10_000)]
    many = [service(f"s{number}", "10.96.1.1", namespace="shop", ports=ports) for number in range(2)]
    with pytest.raises(Invalid, match="make more than"):
        env_of(services=many)
    assert "MY_DB_PORT" in env_of(services=[DB, *(one | {"metadata": {"name": "x", "namespace": "y"}} for one in many)])


def test_one_long_file_read_for_many_variables_is_refused() -> None:
    made = container(
        env=[value_from(f"X{i}", fileKeyRef={"volumeName": "v", "path": "f", "key": "K"}) for i in range(20)]
    )
    files = {("v", "f"): f"K='v'\n#{'x' * (1 << 20)}\n"}
    with pytest.raises(Invalid, match="make more than"):
        environment(pod(made), made, EnvSources(files=files))
