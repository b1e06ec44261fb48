"""How volumes are planned, and what must be fetched for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.common.model.pod_settings import NodeContext, VolumeGates
from agent.volumes.model.local import LocalVolume
from agent.volumes.model.sources import (
    CONFIG_MAP,
    SECRET,
    ObjectRef,
    SourceRefs,
    TokenRequest,
    TrustBundleProjection,
    VolumeSources,
)
from agent.volumes.model.volumes import AtomicVolume, EmptyDir, HostPath, ImageVolume, VolumePlan
from agent.volumes.plan.volumes import (
    needs_only_objects_and_tokens,
    nested_mount_points,
    objects_suffice,
    plan_volumes,
    source_refs,
)
from nodelib.errors import Invalid, NodewrightError, Permanent, Temporary
from nodelib.json_values import Json
from tests.builders.claims import bound
from tests.builders.pods import container, pod

NODE = NodeContext(allocatable={"memory": "1Gi"})
GIB = 1 << 30


def plan(volume: Json, sources: VolumeSources | None = None, **spec: Any) -> VolumePlan:
    containers = spec.pop("containers", [])
    return plan_volumes(pod(*containers, volumes=[{"name": "v", **volume}], **spec), sources or VolumeSources(), NODE)[
        0
    ]


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        pytest.param({}, EmptyDir("v"), id="no source is an emptyDir"),
        pytest.param({"emptyDir": {}}, EmptyDir("v"), id="emptyDir"),
        pytest.param({"emptyDir": {"sizeLimit": "1Mi"}}, EmptyDir("v", size=1 << 20), id="emptyDir with a limit"),
        pytest.param({"emptyDir": {"medium": "Memory"}}, EmptyDir("v", "Memory", GIB), id="memory: allocatable"),
        pytest.param(
            {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}, EmptyDir("v", "Memory", 1 << 20), id="memory: limit"
        ),
        pytest.param(
            {"emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}, EmptyDir("v", "Memory", GIB), id="memory: too much"
        ),
        pytest.param(
            {"emptyDir": {"medium": "HugePages-2Mi"}}, EmptyDir("v", "HugePages", page_size=2 << 20), id="huge pages"
        ),
        pytest.param({"hostPath": {"path": "/tmp/x/"}}, HostPath("v", "/tmp/x"), id="hostPath"),
        pytest.param({"hostPath": {"path": "/x", "type": "File"}}, HostPath("v", "/x", "File"), id="hostPath type"),
        pytest.param({"image": {"reference": "r/a:1"}}, ImageVolume("v", "r/a:1"), id="image"),
    ],
)
def test_plans(volume: Json, expected: VolumePlan) -> None:
    assert plan(volume) == expected


@pytest.mark.parametrize("medium", ["", "Memory", "HugePages-2Mi"])
@pytest.mark.parametrize("on", [True, False])
def test_an_empty_dir_has_the_mode_that_it_names(medium: str, on: bool) -> None:
    one = pod(volumes=[{"name": "v", "emptyDir": {"medium": medium, "mode": 0o750}}])
    (found,) = plan_volumes(one, VolumeSources(), replace(NODE, volumes=VolumeGates(directory_modes=on)))
    assert isinstance(found, EmptyDir)
    assert found.mode == (0o750 if on else None)


def test_pod_memory_limit_bounds_memory_volumes() -> None:
    limited = container(resources={"limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}})
    assert plan({"emptyDir": {"medium": "Memory"}}, containers=[limited]) == EmptyDir("v", "Memory", 64 << 20)


def test_huge_page_size_from_requests() -> None:
    asks = container(resources={"requests": {"hugepages-2Mi": "4Mi"}})
    assert plan({"emptyDir": {"medium": "HugePages"}}, containers=[asks]) == EmptyDir(
        "v", "HugePages", page_size=2 << 20
    )
    with pytest.raises(Invalid, match="one size"):
        plan({"emptyDir": {"medium": "HugePages"}})


def test_fs_group_reaches_the_plans() -> None:
    found = plan({"emptyDir": {}}, securityContext={"fsGroup": 7})
    assert found == EmptyDir("v", fs_group=7)


@pytest.mark.parametrize(
    ("volume", "in_memory", "plugin"),
    [
        pytest.param({"configMap": {"name": "c"}}, False, "kubernetes.io~configmap", id="configMap"),
        pytest.param({"secret": {"secretName": "s"}}, True, "kubernetes.io~secret", id="secret"),
        pytest.param({"downwardAPI": {"items": []}}, True, "kubernetes.io~downward-api", id="downwardAPI"),
        pytest.param({"projected": {"sources": []}}, True, "kubernetes.io~projected", id="projected"),
    ],
)
def test_atomic_volumes(volume: Json, in_memory: bool, plugin: str) -> None:
    sources = VolumeSources({ObjectRef(CONFIG_MAP, "c"): {"data": {}}, ObjectRef(SECRET, "s"): {"data": {}}})
    found = plan(volume, sources)
    assert isinstance(found, AtomicVolume)
    assert (found.in_memory, found.plugin, found.size) == (in_memory, plugin, GIB if in_memory else 0)


@pytest.mark.parametrize(
    ("volume", "error", "message"),
    [
        pytest.param({"emptyDir": {"medium": "Tape"}}, Invalid, 'unknown storage medium "Tape"', id="medium"),
        pytest.param({"hostPath": {"path": "x"}}, Invalid, "absolute path", id="relative hostPath"),
        pytest.param({"hostPath": {"path": "/a/../b"}}, Invalid, "without '..'", id="backsteps"),
        pytest.param({"hostPath": {"path": "/a", "type": "Odd"}}, Invalid, "invalid volume type", id="hostPath type"),
        pytest.param({"nfs": {"server": "x"}}, Permanent, "volume type nfs is not supported", id="nfs"),
        pytest.param(
            {"persistentVolumeClaim": {"claimName": "c"}}, Temporary, "PVC .*/c: failed to fetch PVC", id="no claim"
        ),
        pytest.param({"configMap": {"name": "c"}}, Temporary, 'configmap "c" not found', id="missing"),
    ],
)
def test_refusals(volume: Json, error: type[NodewrightError], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        plan(volume)
    assert raised.value.action


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"local": {"path": "/mnt/d"}},
            LocalVolume("v", "pv", "/mnt/d", read_only=True, fs_group=5, claim="c"),
            id="local",
        ),
        pytest.param({"hostPath": {"path": "/mnt/e"}}, HostPath("v", "/mnt/e", "", True), id="hostPath"),
    ],
)
def test_claims(spec: Json, expected: VolumePlan) -> None:
    volume = {"persistentVolumeClaim": {"claimName": "c", "readOnly": True}}
    assert plan(volume, VolumeSources(claims={"c": bound(spec)}), securityContext={"fsGroup": 5}) == expected


def test_generic_ephemeral_claims_have_the_pods_name() -> None:
    found = plan({"ephemeral": {}}, VolumeSources(claims={"web-v": bound(owner=pod().uid)}))
    assert isinstance(found, LocalVolume)


@pytest.mark.parametrize(
    "spec", [{"nfs": {}}, {"volumeMode": "Block", "hostPath": {"path": "/dev/x"}}], ids=["nfs", "block"]
)
def test_claims_on_other_volumes_are_refused(spec: Json) -> None:
    with pytest.raises(Permanent, match="does not support"):
        plan({"persistentVolumeClaim": {"claimName": "c"}}, VolumeSources(claims={"c": bound(spec)}))


def test_source_refs() -> None:
    sources = [
        {"configMap": {"name": "pc"}},
        {"secret": {"name": "ps"}},
        {"serviceAccountToken": {"path": "t"}},
        {"clusterTrustBundle": {"signerName": "s", "labelSelector": {}, "path": "p"}},
    ]
    volumes = [
        {"name": "a", "configMap": {"name": "c"}},
        {"name": "b", "secret": {"secretName": "s"}},
        {"name": "c", "projected": {"sources": sources}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "e", "ephemeral": {}},
    ]
    assert source_refs(pod(volumes=volumes)) == SourceRefs(
        frozenset(
            {ObjectRef(CONFIG_MAP, "c"), ObjectRef(CONFIG_MAP, "pc"), ObjectRef(SECRET, "s"), ObjectRef(SECRET, "ps")}
        ),
        frozenset({TokenRequest("", 3600)}),
        frozenset({TrustBundleProjection(signer="s", selector="{}")}),
        frozenset({"claim", "web-e"}),
    )


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        pytest.param([("v", "/dir")], (), id="alone"),
        pytest.param([("v", "/dir"), ("w", "/dir/nested")], ("nested",), id="nested"),
        pytest.param(
            [("v", "/dir"), ("w", "/dir/nested"), ("x", "/dir/nested/deep")], ("nested",), id="only the first"
        ),
        pytest.param(
            [("v", "/dir"), ("w", "/dir/nested"), ("x", "/dir/nested-vol"), ("y", "/dir/nested2")],
            ("nested", "nested-vol", "nested2"),
            id="names that begin alike",
        ),
        pytest.param([("v", "/dir"), ("w", "/directory")], (), id="not below"),
        pytest.param([("v", "/"), ("w", "/a")], ("a",), id="root"),
        pytest.param([("v", "dir/../../etc"), ("w", "/etc/x")], ("x",), id="never above the root"),
    ],
)
def test_nested_mount_points(paths: list[tuple[str, str]], expected: tuple[str, ...]) -> None:
    mounts = [{"name": name, "mountPath": path} for name, path in paths]
    assert nested_mount_points(pod(container(volumeMounts=mounts))).get("v", ()) == expected


@given(st.lists(st.tuples(st.sampled_from("vw"), st.text(alphabet="./ab", max_size=8)), max_size=5))
def test_nested_mount_points_stay_inside(paths: list[tuple[str, str]]) -> None:
    mounts = [{"name": name, "mountPath": path} for name, path in paths]
    for found in nested_mount_points(pod(container(volumeMounts=mounts))).get("v", ()):
        assert found and not found.startswith("/") and ".." not in found.split("/")


TOKEN = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "ca"}}]}}
KEYED = {"configMap": {"name": "ca", "items": [{"key": "a", "path": "a"}]}}
CA = ObjectRef(CONFIG_MAP, "ca")


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        pytest.param({}, True, id="a-directory"),
        pytest.param({"emptyDir": {"medium": "Memory"}}, True, id="in-memory"),
        pytest.param({"emptyDir": {"medium": "HugePages-2Mi"}}, False, id="in-pages-that-may-be-missing"),
        pytest.param(TOKEN, True, id="a-token"),
        pytest.param({"hostPath": {"path": "/x", "type": "File"}}, False, id="the-nodes-files"),
        pytest.param({"image": {"reference": "r"}}, False, id="an-image"),
        pytest.param({"csi": {"driver": "d"}}, False, id="a-drivers"),
        pytest.param({"nfs": {"server": "s"}}, False, id="not-supported"),
        pytest.param({"persistentVolumeClaim": {"claimName": "c"}}, False, id="a-claim"),
        pytest.param({"projected": {"sources": [{"podCertificate": {"signerName": "s"}}]}}, False, id="a-signers"),
        pytest.param({"projected": {"sources": [{"clusterTrustBundle": {"name": "b"}}]}}, False, id="a-bundle"),
    ],
)
def test_volumes_that_only_objects_and_tokens_make(volume: Json, expected: bool) -> None:
    subject = pod(volumes=[{"name": "v", **volume}])
    assert needs_only_objects_and_tokens(subject, source_refs(subject)) is expected


@pytest.mark.parametrize(
    ("volume", "found", "expected"),
    [
        pytest.param(TOKEN, {"data": {"a": "1"}}, True, id="whatever-the-token-is"),
        pytest.param(TOKEN, None, False, id="no-object"),
        pytest.param(KEYED, {"data": {"a": "1"}}, True, id="the-key-is-there"),
        pytest.param(KEYED, {"data": {"b": "1"}}, False, id="no-such-key"),
    ],
)
def test_objects_fit_when_the_volumes_can_be_planned_from_them(
    volume: Json, found: Json | None, expected: bool
) -> None:
    subject = pod(volumes=[{"name": "v", **volume}])
    assert objects_suffice(subject, {CA: found}, source_refs(subject), NODE) is expected
