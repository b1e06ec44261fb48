"""CSI: volumes from API objects, requests to drivers, and how a driver appears in the Node."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agent.common.model.pods import Pod
from agent.volumes.model.csi import (
    EXPAND,
    MOUNT_GROUP,
    MULTI_WRITER,
    STAGE,
    CsiSecrets,
    CsiVolume,
    DriverFacts,
    SecretRef,
)
from agent.volumes.model.sources import TokenRequest
from agent.volumes.plan import csi
from agent.volumes.plan.csi_node import NODE_ID, check_driver, csi_node, node_patch
from nodelib.errors import Invalid, Permanent
from nodelib.json_values import Json
from tests.builders.pods import pod

FACTS = DriverFacts("drv", "/p/drv.sock", "node-7", capabilities=frozenset({STAGE, EXPAND}))
VOLUME = CsiVolume("v", "pv-1", "drv", "h-1", fs_type="ext4", access_modes=("ReadWriteOnce",), fs_group=2000)
PV = {
    "metadata": {"name": "pv-1"},
    "spec": {
        "capacity": {"storage": "2Gi"},
        "accessModes": ["ReadWriteOnce"],
        "mountOptions": ["noatime"],
        "csi": {
            "driver": "drv",
            "volumeHandle": "h-1",
            "fsType": "ext4",
            "volumeAttributes": {"pool": "a"},
            "nodeStageSecretRef": {"name": "s", "namespace": "sys"},
        },
    },
}


def subject(**spec: Any) -> Pod:
    return pod({"name": "c"}, **spec)


def test_a_claimed_volume() -> None:
    found = csi.claimed_volume(subject(securityContext={"fsGroup": 2000}), "v", "c1", PV, read_only=True)
    assert (found.spec_name, found.handle, found.claim, found.size) == ("pv-1", "h-1", "c1", 2 << 30)
    assert found.read_only and not found.ephemeral and not found.block
    assert found.mount_options == ("noatime",) and found.stage_secret == SecretRef("sys", "s")
    assert found.key.unique_name == "kubernetes.io/csi/drv^h-1"


def test_an_inline_volume_has_a_handle_of_its_pod() -> None:
    source = {"driver": "drv", "nodePublishSecretRef": {"name": "s"}, "volumeAttributes": {"a": "b"}}
    found = csi.inline_volume(subject(), "scratch", source)
    other = csi.inline_volume(subject(), "other", source)
    assert found.ephemeral and found.spec_name == "scratch" and found.handle.startswith("csi-")
    assert found.handle != other.handle and found.publish_secret == SecretRef(subject().namespace, "s")


@pytest.mark.parametrize(
    ("spec", "ephemeral", "problem"),
    [
        pytest.param(None, False, "", id="persistent needs no object"),
        pytest.param(None, True, "there is no CSIDriver object", id="ephemeral does"),
        pytest.param({}, True, "the CSIDriver object does not list it", id="persistent is an object's default"),
        pytest.param({"volumeLifecycleModes": ["Ephemeral"]}, True, "", id="offered"),
        pytest.param(
            {"volumeLifecycleModes": ["Ephemeral"]}, False, "the CSIDriver object does not list it", id="only ephemeral"
        ),
    ],
)
def test_lifecycle_modes(spec: Json | None, ephemeral: bool, problem: str) -> None:
    found = ""
    try:
        csi.check_lifecycle(replace(VOLUME, ephemeral=ephemeral), None if spec is None else {"spec": spec})
    except Permanent as error:
        found = error.message
    mode = "Ephemeral" if ephemeral else "Persistent"
    assert found == (f'volume mode "{mode}" not supported by driver drv ({problem})' if problem else "")


@pytest.mark.parametrize(
    ("modes", "capabilities", "mode"),
    [
        pytest.param((), (), 1, id="no mode"),
        pytest.param(("ReadWriteOnce",), (), 1, id="one node"),
        pytest.param(("ReadWriteOnce",), (MULTI_WRITER,), 7, id="one node, many writers"),
        pytest.param(("ReadWriteOncePod",), (MULTI_WRITER,), 6, id="one pod"),
        pytest.param(("ReadWriteOncePod",), (), 1, id="one pod, old driver"),
        pytest.param(("ReadOnlyMany", "ReadWriteOnce"), (), 3, id="the first counts"),
        pytest.param(("ReadWriteMany",), (MULTI_WRITER,), 5, id="everybody"),
    ],
)
def test_access_modes(modes: tuple[str, ...], capabilities: tuple[int, ...], mode: int) -> None:
    facts = replace(FACTS, capabilities=frozenset(capabilities))
    assert csi.capability(replace(VOLUME, access_modes=modes), facts)["access_mode"] == {"mode": mode}


@pytest.mark.parametrize(
    ("policy", "change", "expected"),
    [
        pytest.param(None, {}, True, id="by default: a file system with one writer"),
        pytest.param(None, {"fs_type": ""}, False, id="no file system named"),
        pytest.param(None, {"access_modes": ("ReadWriteMany",)}, False, id="many writers"),
        pytest.param(None, {"access_modes": (), "ephemeral": True}, True, id="inline"),
        pytest.param("File", {"fs_type": "", "access_modes": ("ReadWriteMany",)}, True, id="File: always"),
        pytest.param("None", {}, False, id="None: never"),
        pytest.param("File", {"read_only": True}, False, id="read-only"),
        pytest.param("File", {"block": True}, False, id="a block device"),
        pytest.param("File", {"fs_group": None}, False, id="no group"),
    ],
)
def test_which_volumes_the_agent_gives_to_the_group(policy: str | None, change: Json, expected: bool) -> None:
    volume, driver = replace(VOLUME, **change), {"spec": {"fsGroupPolicy": policy}}
    assert csi.applies_fs_group(volume, driver, FACTS) is expected
    assert not csi.applies_fs_group(volume, driver, replace(FACTS, capabilities=frozenset({MOUNT_GROUP})))


def test_a_driver_that_mounts_for_a_group_gets_it() -> None:
    facts = replace(FACTS, capabilities=frozenset({STAGE, MOUNT_GROUP}))
    asked = csi.stage_request(VOLUME, facts, "/s", {}, CsiSecrets(stage={"k": "v"}))
    assert asked["volume_capability"]["mount"]["volume_mount_group"] == "2000" and asked["secrets"] == {"k": "v"}
    assert "volume_mount_group" not in csi.capability(VOLUME, FACTS)["mount"]


def test_publish_names_the_staging_path_only_to_drivers_that_stage() -> None:
    given: Json = {"target": "/t", "staging": "/s", "context": {}, "volume_context": {}, "secrets": {}}
    assert csi.publish_request(VOLUME, FACTS, **given)["staging_target_path"] == "/s"
    inline = replace(VOLUME, ephemeral=True)
    assert csi.publish_request(inline, FACTS, **given)["staging_target_path"] == ""


@pytest.mark.parametrize("in_secrets", [False, True], ids=["in the context", "in the secrets"])
def test_pod_and_tokens_in_the_context(in_secrets: bool) -> None:
    spec = {"podInfoOnMount": True, "tokenRequests": [{"audience": "vault"}, {}]}
    driver = {"spec": {**spec, "serviceAccountTokenInSecrets": in_secrets}}
    requests = csi.token_requests(driver)
    assert requests == (TokenRequest("vault", 3600), TokenRequest("", 3600))
    status = {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}
    owner = subject(serviceAccountName="sa")
    context, hidden = csi.publish_contexts(
        replace(VOLUME, attributes={"pool": "a"}),
        owner,
        driver,
        dict.fromkeys(requests, status),
        CsiSecrets({"k": "v"}),
    )
    assert context["pool"] == "a" and context["csi.storage.k8s.io/pod.uid"] == owner.uid
    assert context["csi.storage.k8s.io/serviceAccount.name"] == "sa"
    assert context["csi.storage.k8s.io/ephemeral"] == "false" and hidden["k"] == "v"
    where = hidden if in_secrets else context
    assert set(json.loads(where["csi.storage.k8s.io/serviceAccount.tokens"])) == {"vault", ""}


def test_usage() -> None:
    given = [{"unit": 1, "available": 5, "total": 9, "used": 4}, {"unit": 2, "available": 1, "total": 3, "used": 2}]
    assert csi.usage_stats(given) == {
        "available": 5,
        "capacity": 9,
        "used": 4,
        "inodes_free": 1,
        "inodes": 3,
        "inodes_used": 2,
    }


NODE: Json = {"metadata": {"name": "n", "uid": "u", "labels": {"zone": "a"}, "annotations": {NODE_ID: '{"x":"1"}'}}}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(
            replace(FACTS, topology={"zone": "a", "rack": "r"}),
            {"labels": {"rack": "r"}, "annotations": {NODE_ID: '{"drv":"node-7","x":"1"}'}},
            id="a driver comes",
        ),
        pytest.param(None, {}, id="one leaves that is not there"),
    ],
)
def test_node_patch(facts: DriverFacts | None, expected: Json) -> None:
    assert node_patch(NODE, "drv", facts).get("metadata", {}) == expected


def test_the_annotation_goes_with_the_last_driver() -> None:
    assert node_patch(NODE, "x", None) == {"metadata": {"annotations": {NODE_ID: None}}}


def test_topology_that_contradicts_the_node_is_refused() -> None:
    with pytest.raises(Permanent, match="topology value collision"):
        node_patch(NODE, "drv", replace(FACTS, topology={"zone": "b"}))


def test_csi_node_over_a_drivers_life() -> None:
    facts = replace(FACTS, max_volumes=3, topology={"zone": "a"})
    made = csi_node(None, NODE, "drv", facts)
    assert made is not None and made["metadata"]["ownerReferences"][0]["uid"] == "u"
    entry = {"name": "drv", "nodeID": "node-7", "topologyKeys": ["zone"], "allocatable": {"count": 3}}
    assert made["spec"]["drivers"] == [entry]
    assert csi_node(made, NODE, "drv", facts) is None
    again = csi_node(made, NODE, "drv", replace(facts, node_id="node-8"))
    assert again is not None and [one["nodeID"] for one in again["spec"]["drivers"]] == ["node-8"]
    gone = csi_node(made, NODE, "drv", None)
    assert gone is not None and gone["spec"]["drivers"] == []


@pytest.mark.parametrize(
    ("versions", "problem"),
    [
        (("1.0.0",), ""),
        (("0.3.0", "v1.2.0"), ""),
        (("2.0.0",), "none of the versions specified ['2.0.0'] are supported"),
    ],
)
def test_versions(versions: tuple[str, ...], problem: str) -> None:
    found = ""
    try:
        check_driver("drv", versions)
    except Invalid as error:
        found = error.message
    assert found == problem
