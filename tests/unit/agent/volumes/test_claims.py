"""Which claims a pod may use, with upstream's messages (see agent/volumes/plan/claims.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.common.model.pod_settings import NodeContext, PodPaths
from agent.volumes.edge.pod_disk import PodDisk
from agent.volumes.model.sources import FoundClaim, VolumeSources
from agent.volumes.plan.volumes import plan_volumes, sole_volumes
from agent.volumes.work.manager import VolumeManager, VolumeManagerDeps
from nodelib.errors import Temporary
from nodelib.json_values import Json
from tests.builders.claims import bound
from tests.builders.pods import pod, user_of
from tests.fakes.volumes import FakeCertificates, FakeCsi, FakeDisk, FakeLocal, FakeObjects

CLAIMED: Json = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
EPHEMERAL: Json = {"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}
DELETED = "2026-01-01T00:00:00Z"
ALONE: Json = {"local": {"path": "/m"}, "accessModes": ["ReadWriteOncePod"]}


def _of_other_claim(uid: str | None) -> FoundClaim:
    found = bound()
    assert found.volume is not None
    ref = None if uid is None else {"uid": uid}
    return replace(found, volume={**found.volume, "spec": {**found.volume["spec"], "claimRef": ref}})


@pytest.mark.parametrize(
    ("volume", "found", "message"),
    [
        pytest.param(
            CLAIMED, None, 'failed to fetch PVC from API server: persistentvolumeclaims "c" not found', id="none"
        ),
        pytest.param(CLAIMED, bound(deletionTimestamp=DELETED), "PVC is being deleted", id="being deleted"),
        pytest.param(
            CLAIMED, bound(deletionTimestamp=DELETED, finalizers=["x"]), "PVC is being deleted", id="other finalizer"
        ),
        pytest.param(CLAIMED, bound(status="Pending"), "PVC is not bound", id="pending"),
        pytest.param(CLAIMED, bound(status="Lost"), "PVC is not bound", id="lost"),
        pytest.param(CLAIMED, bound(volume=""), "PVC has empty pvc.Spec.VolumeName", id="no volume's name"),
        pytest.param(
            CLAIMED,
            replace(bound(), volume=None),
            'failed to fetch PV pv from API server: persistentvolumes "pv" not found',
            id="no volume",
        ),
        pytest.param(
            CLAIMED,
            _of_other_claim(None),
            "found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
            id="volume of nobody",
        ),
        pytest.param(
            CLAIMED,
            _of_other_claim("c-2"),
            "found PV object pv but its pv.Spec.ClaimRef.UID c-2 does not point to claim.UID c-1",
            id="volume of another claim",
        ),
    ],
)
def test_claims_that_cannot_be_used(volume: Json, found: FoundClaim | None, message: str) -> None:
    web = pod(volumes=[volume])
    with pytest.raises(Temporary) as raised:
        plan_volumes(web, VolumeSources(claims={"c": found} if found else {}), NodeContext())
    assert raised.value.message == f"error processing PVC {web.namespace}/c: {message}"
    assert raised.value.action


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(bound(), id="of nobody"),
        pytest.param(bound(owner="another"), id="of another pod"),
        pytest.param(bound(ownerReferences=[{"kind": "Pod", "uid": pod().uid}]), id="owned, not controlled"),
    ],
)
def test_a_claim_that_was_not_made_for_the_pod_is_not_its_ephemeral_volume(found: FoundClaim) -> None:
    """Whoever may create claims could else have a pod of that name use any volume, and delete it with the pod."""
    web = pod(volumes=[EPHEMERAL])
    with pytest.raises(Temporary) as raised:
        plan_volumes(web, VolumeSources(claims={f"{web.name}-v": found}), NodeContext())
    expected = f"PVC {web.namespace}/{web.name}-v was not created for pod {web.full_name} (pod is not owner)"
    assert raised.value.message == expected


def test_a_claim_that_is_still_protected_serves_pods_that_run() -> None:
    found = bound(deletionTimestamp=DELETED, finalizers=["kubernetes.io/pvc-protection"])
    assert plan_volumes(pod(volumes=[CLAIMED]), VolumeSources(claims={"c": found}), NodeContext())


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        (["ReadWriteOncePod"], ["pv"]),
        (["ReadWriteOncePod", "ReadWriteOnce"], []),
        (["ReadWriteOnce"], []),
        ([], []),
    ],
    ids=["alone", "with another mode", "per node", "none"],
)
def test_which_volumes_a_pod_has_to_itself(modes: list[str], expected: list[str]) -> None:
    sources = VolumeSources(claims={"c": bound({"local": {"path": "/m"}, "accessModes": modes})})
    found = sole_volumes(pod(volumes=[CLAIMED, {"name": "e", "emptyDir": {}}]), sources)
    assert [one["metadata"]["name"] for one in found] == expected


async def test_a_second_pod_waits_for_a_volume_of_one_pod() -> None:
    objects, disk = FakeObjects(), FakeDisk()
    objects.claims = {"c": bound(ALONE)}
    volumes = VolumeManager(
        "/r", VolumeManagerDeps(objects, FakeCertificates(), disk, FakeCsi(), FakeLocal(), lambda: NodeContext())
    )
    first, second = (
        pod(user_of(CLAIMED["name"]), meta={"uid": uid, "name": uid}, volumes=[CLAIMED]) for uid in ("u1", "u2")
    )
    await volumes.mount(first)
    await volumes.mount(first)
    with pytest.raises(Temporary) as raised:
        await volumes.mount(second)
    assert raised.value.message == (
        'MountVolume.SetUp failed for volume "pv" : volume uses the ReadWriteOncePod access mode and is already in use '
        "by another pod"
    )
    assert "u2" not in disk.volumes
    objects.claims = {"c": bound({**ALONE, "volumeMode": "Block"})}
    with pytest.raises(Temporary, match=r"MapVolume\.SetUpDevice failed"):
        await volumes.mount(second)
    await volumes.release("u1")
    await volumes.mount(second)


def test_the_next_agent_knows_who_has_a_volume(tmp_path: object) -> None:
    first, second = (PodPaths(str(tmp_path), uid) for uid in ("u1", "u2"))
    assert PodDisk(str(tmp_path)).reserve(first, "pv") == ""
    again = PodDisk(str(tmp_path))
    assert (again.reserve(first, "pv"), again.reserve(second, "pv"), again.reserve(second, "other")) == ("", "u1", "")
    again.tear_down(first)
    assert again.reserve(second, "pv") == ""
