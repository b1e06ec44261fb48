"""Files of configMap, secret, downwardAPI and projected volumes."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.common.model.pod_settings import NodeContext, VolumeGates
from agent.volumes.model.sources import (
    CONFIG_MAP,
    SECRET,
    CertificateProjection,
    Credential,
    ObjectRef,
    TokenRequest,
    TrustBundleProjection,
    VolumeSources,
)
from agent.volumes.model.volumes import FileProjection
from agent.volumes.plan.payload import (
    FileDefaults,
    certificate_projection,
    checked_path,
    downward_files,
    fs_user,
    object_files,
    projected_files,
)
from agent.volumes.plan.volumes import source_refs
from nodelib.errors import Invalid, NodewrightError, Temporary
from nodelib.json_values import Json
from tests.builders.pods import container, pod

CM, SEC = ObjectRef(CONFIG_MAP, "settings"), ObjectRef(SECRET, "keys")
CONFIG: Json = {"data": {"a": "1", "b": "2"}, "binaryData": {"bin": base64.b64encode(b"\x00\xff").decode()}}
KEYS: Json = {"data": {"pass": base64.b64encode(b"x").decode()}}
NODE = NodeContext(allocatable={"cpu": "2", "memory": "1Gi"})


def shown(files: dict[str, FileProjection]) -> dict[str, tuple[bytes, int, int | None]]:
    return {path: (file.data, file.mode, file.uid) for path, file in files.items()}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            {}, {"a": (b"1", 420, None), "b": (b"2", 420, None), "bin": (b"\0\xff", 420, None)}, id="all keys"
        ),
        pytest.param({"items": [{"key": "a", "path": "x/y"}]}, {"x/y": (b"1", 420, None)}, id="items"),
        pytest.param({"items": [{"key": "a", "path": "x", "mode": 0}]}, {"x": (b"1", 0, None)}, id="mode zero counts"),
        pytest.param({"items": [{"key": "a", "path": "x//y/."}]}, {"x/y": (b"1", 420, None)}, id="normalized"),
        pytest.param(
            {"items": [{"key": "no", "path": "x"}, {"key": "a", "path": "y"}], "optional": True},
            {"y": (b"1", 420, None)},
            id="optional key",
        ),
    ],
)
def test_config_map(source: Json, expected: Json) -> None:
    assert shown(object_files(pod(), "v", CM, source, CONFIG, FileDefaults(0o644))) == expected


def test_secret_is_decoded() -> None:
    assert shown(object_files(pod(), "v", SEC, {}, KEYS, FileDefaults(0o400))) == {"pass": (b"x", 0o400, None)}
    with pytest.raises(Invalid, match="base64"):
        object_files(pod(), "v", SEC, {}, {"data": {"p": "%%%"}}, FileDefaults(0o400))


@pytest.mark.parametrize(
    ("source", "found", "message"),
    [
        pytest.param({}, None, 'configmap "settings" not found.*Create ConfigMap shop/settings', id="object"),
        pytest.param({"items": [{"key": "no", "path": "x"}]}, CONFIG, "non-existent key 'no' of ConfigMap", id="key"),
    ],
)
def test_missing_things_wait(source: Json, found: Json | None, message: str) -> None:
    with pytest.raises(Temporary, match=message):
        object_files(pod(), "v", CM, source, found, FileDefaults(0o644))


def test_missing_optional_object_is_an_empty_volume() -> None:
    assert object_files(pod(), "v", CM, {"optional": True}, None, FileDefaults(0o644)) == {}


@pytest.mark.parametrize("path", ["a", "a/b", "a..b", "a/..b", ".hidden"])
def test_good_paths(path: str) -> None:
    assert checked_path(path) == path


@pytest.mark.parametrize(
    "path", ["", ".", "/etc", "..", "../x", "a/../b", "..data", "..2026", "./../x", "x" * 256, "a/" * 3000, "a\0b"]
)
def test_bad_paths(path: str) -> None:
    with pytest.raises(Invalid, match="invalid path"):
        checked_path(path)


@pytest.mark.parametrize(
    ("users", "owners"),
    [
        pytest.param(True, {"cm": 7, "own": 8, "labels": 9, "token": 10, "same": 7}, id="gate on"),
        pytest.param(False, dict.fromkeys(("cm", "own", "labels", "token", "same")), id="gate off"),
    ],
)
def test_files_have_the_owners_that_the_volume_names(users: bool, owners: dict[str, int | None]) -> None:
    """As resolveFsUser: the item's user, then the volume's; only then, for credentials, that of the containers."""
    node = NodeContext(volumes=VolumeGates(file_users=users))
    items = [{"key": "a", "path": "cm"}, {"key": "b", "path": "own", "user": 8}]
    labels = {"path": "labels", "fieldRef": {"fieldPath": "metadata.name"}, "user": 9}
    tokens = [{"path": "token", "user": 10}, {"path": "same", "audience": "b"}]
    source = {
        "defaultUser": 7,
        "sources": [
            {"configMap": {"name": "settings", "items": items}},
            {"downwardAPI": {"items": [labels]}},
            *({"serviceAccountToken": one} for one in tokens),
        ],
    }
    given = VolumeSources({CM: CONFIG}, {TokenRequest("", 3600): "t", TokenRequest("b", 3600): "t"})
    files = projected_files(pod(), "v", source, given, node)
    assert {path: file.uid for path, file in files.items()} == owners
    assert files["token"].mode == (0o600 if users else 0o644)


@pytest.mark.parametrize("user", [-1, 2**31])
def test_an_owner_that_linux_has_not_is_refused(user: int) -> None:
    with pytest.raises(Invalid, match="defaultUser"):
        object_files(pod(), "v", CM, {}, CONFIG, FileDefaults(0o644, user, users=True))


@given(st.text(alphabet="./ab\0", max_size=12))
def test_checked_paths_never_leave_the_volume(path: str) -> None:
    try:
        clean = checked_path(path)
    except Invalid:
        return
    parts = clean.split("/")
    assert clean
    assert not clean.startswith(("/", ".."))
    assert ".." not in parts and "." not in parts and "" not in parts


def test_downward_items() -> None:
    source = {
        "items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "d/cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}, "mode": 0o400},
        ]
    }
    files = downward_files(pod(meta={"labels": {"a": "1"}}), source, NODE, FileDefaults(0o644))
    assert shown(files) == {"labels": (b'a="1"', 0o644, None), "d/cpu": (b"2", 0o400, None)}


TOKEN: Json = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "vault"}}
BUNDLE: Json = {"clusterTrustBundle": {"name": "roots", "path": "ca.pem"}}
SOURCES = VolumeSources(
    {CM: CONFIG, SEC: KEYS},
    {TokenRequest("vault", 600): "tok"},
    {TrustBundleProjection(name="roots"): b"PEM", TrustBundleProjection(name="no"): None},
)


def test_projected_sources_in_order() -> None:
    source = {
        "defaultMode": 0o440,
        "sources": [
            {"configMap": {"name": "settings", "items": [{"key": "a", "path": "same"}]}},
            {"secret": {"name": "keys", "items": [{"key": "pass", "path": "same"}]}},
            {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            TOKEN,
            BUNDLE,
        ],
    }
    files = projected_files(pod(), "v", source, SOURCES, NODE)
    assert shown(files) == {
        "same": (b"x", 0o440, None),
        "ns": (b"shop", 0o440, None),
        "token": (b"tok", 0o440, None),
        "ca.pem": (b"PEM", 0o440, None),
    }


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        pytest.param({}, (0o644, None), id="readable by all"),
        pytest.param({"fsGroup": 5}, (0o600, None), id="fsGroup: widened by the ownership pass"),
        pytest.param({"runAsUser": 7}, (0o600, 7), id="one user: it owns the token"),
        pytest.param({"runAsUser": 7, "fsGroup": 5}, (0o600, 7), id="both"),
    ],
)
def test_token_ownership(context: Json, expected: tuple[int, int | None]) -> None:
    files = projected_files(pod(securityContext=context), "v", {"sources": [TOKEN]}, SOURCES, NODE)
    assert (files["token"].mode, files["token"].uid) == expected


def test_user_of_all_containers() -> None:
    seven, eight = {"runAsUser": 7}, {"runAsUser": 8}
    assert fs_user(pod(container("a", securityContext=seven), container("b", securityContext=seven))) == 7
    assert fs_user(pod(container("a", securityContext=seven), container("b", securityContext=eight))) is None
    assert fs_user(pod(container("a", securityContext=seven), container("b"))) is None
    assert fs_user(pod(container("a"), container("b", securityContext=seven), securityContext=seven)) == 7


def test_missing_trust_bundle() -> None:
    wanted: Json = {"clusterTrustBundle": {"name": "no", "path": "p"}}
    with pytest.raises(Temporary, match="no ClusterTrustBundle matches no"):
        projected_files(pod(), "v", {"sources": [wanted]}, SOURCES, NODE)
    wanted["clusterTrustBundle"]["optional"] = True
    assert projected_files(pod(), "v", {"sources": [wanted]}, SOURCES, NODE)["p"].data == b""


ASKED: Json = {"signerName": "example.com/s", "keyType": "ED25519"}
BOTH = Credential(b"KEY\n", b"CHAIN\n")


@pytest.mark.parametrize(
    ("paths", "context", "expected"),
    [
        pytest.param({"credentialBundlePath": "tls.pem"}, {}, {"tls.pem": (b"KEY\nCHAIN\n", 0o644, None)}, id="bundle"),
        pytest.param(
            {"keyPath": "tls/key", "certificateChainPath": "tls/crt"},
            {"fsGroup": 5},
            {"tls/key": (b"KEY\n", 0o600, None), "tls/crt": (b"CHAIN\n", 0o600, None)},
            id="two files, with a group",
        ),
        pytest.param(
            {"credentialBundlePath": "b", "keyPath": "k", "certificateChainPath": "c"},
            {"runAsUser": 7},
            {"b": (b"KEY\nCHAIN\n", 0o600, 7), "k": (b"KEY\n", 0o600, 7), "c": (b"CHAIN\n", 0o600, 7)},
            id="all, with a user",
        ),
    ],
)
def test_pod_certificates(paths: Json, context: Json, expected: dict[str, tuple[bytes, int, int | None]]) -> None:
    # The index counts all sources: two equal ones are two certificates.
    sources = [{"downwardAPI": {}}, {"podCertificate": {**ASKED, **paths}}]
    found = VolumeSources(certificates={CertificateProjection("v", 1, "example.com/s", "ED25519"): BOTH})
    files = projected_files(pod(securityContext=context), "v", {"sources": sources}, found, NODE)
    assert shown(files) == expected


def test_a_certificate_that_was_not_obtained() -> None:
    source = {"sources": [{"podCertificate": {**ASKED, "keyPath": "k"}}]}
    why = Temporary("not issued yet")
    sources = VolumeSources(certificates={CertificateProjection("v", 0, "example.com/s", "ED25519"): why})
    with pytest.raises(Temporary, match="not issued yet"):
        projected_files(pod(), "v", source, sources, NODE)


def test_certificate_projection() -> None:
    origin = {**ASKED, "maxExpirationSeconds": 3600, "userAnnotations": {"b.io/k": "2", "a.io/k": "1"}}
    found = certificate_projection("v", 2, origin)
    assert found == CertificateProjection("v", 2, "example.com/s", "ED25519", 3600, (("a.io/k", "1"), ("b.io/k", "2")))
    assert (
        found
        in source_refs(
            pod(volumes=[{"name": "v", "projected": {"sources": [{}, {}, {"podCertificate": origin}]}}])
        ).certificates
    )


@given(st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "path": st.text(max_size=8)}), max_size=4))
def test_any_items_work_or_are_refused_with_a_reason(items: list[Json]) -> None:
    try:
        object_files(pod(), "v", CM, {"items": items}, CONFIG, FileDefaults(0o644))
    except NodewrightError as error:
        assert error.message
