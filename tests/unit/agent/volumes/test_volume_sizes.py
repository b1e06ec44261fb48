"""Pods whose volumes would be too much: refused before anything is made, in a time that does not grow with it."""

from __future__ import annotations

import base64
import time

import pytest

from agent.common.model.pod_settings import NodeContext
from agent.volumes.model.sources import CONFIG_MAP, SECRET, ObjectRef, TrustBundleProjection, VolumeSources
from agent.volumes.model.volumes import AtomicVolume, EmptyDir
from agent.volumes.plan.volumes import nested_mount_points, plan_updates, plan_volumes
from nodelib.errors import Invalid
from nodelib.json_values import Json
from tests.builders.pods import container, pod

NODE = NodeContext(allocatable={"memory": "4Gi"})
BIG = "x" * 700_000
SOURCES = VolumeSources(
    objects={
        ObjectRef(CONFIG_MAP, "many"): {"data": {f"{i:x}": "" for i in range(100_000)}},
        ObjectRef(CONFIG_MAP, "big"): {"data": {"k": BIG}},
        ObjectRef(SECRET, "big"): {"data": {"k": base64.b64encode(BIG.encode()).decode()}},
    },
    bundles={TrustBundleProjection(name="b"): BIG.encode()},
)
_ITEMS = [{"key": "k", "path": str(i)} for i in range(1000)]
_FIELDS = [{"path": str(i), "fieldRef": {"fieldPath": "metadata.annotations"}} for i in range(1000)]
_WIDE = [{"configMap": {"name": "many"}} for _ in range(200)]
_BUNDLES = [{"clusterTrustBundle": {"name": "b", "path": str(i)}} for i in range(1000)]
TOO_MUCH = [
    pytest.param([{"name": f"v{i}", "configMap": {"name": "many"}} for i in range(200)], id="one object, many volumes"),
    pytest.param([{"name": "v", "configMap": {"name": "big", "items": _ITEMS}}], id="one key, many files"),
    pytest.param([{"name": "v", "secret": {"secretName": "big", "items": _ITEMS}}], id="one key of a Secret"),
    pytest.param([{"name": "v", "projected": {"sources": _WIDE}}], id="one object, many sources"),
    pytest.param([{"name": "v", "projected": {"sources": _BUNDLES}}], id="one trust bundle, many files"),
    pytest.param([{"name": "v", "downwardAPI": {"items": _FIELDS}}], id="annotations, many files"),
]


@pytest.mark.parametrize("volumes", TOO_MUCH)
def test_volumes_that_hold_too_much_are_refused(volumes: list[Json]) -> None:
    made = pod(volumes=volumes)
    made.meta["annotations"] = {"a": "x" * 200_000}
    begin = time.process_time()
    with pytest.raises(Invalid, match="would hold more than"):
        plan_volumes(made, SOURCES, NODE)
    plans, problems = plan_updates(made, SOURCES, NODE)
    assert plans == [] and len(problems) == 1
    assert time.process_time() - begin < 10


def test_volumes_that_hold_what_objects_hold_are_made() -> None:
    volumes = [{"name": f"v{i}", "configMap": {"name": "big"}} for i in range(50)]
    assert len(plan_volumes(pod(volumes=[*volumes, {"name": "m", "configMap": {"name": "many"}}]), SOURCES, NODE)) == 51


@pytest.mark.parametrize(("files", "refused"), [pytest.param(40, False, id="some"), pytest.param(50, True, id="many")])
def test_the_fields_of_a_pod_are_put_together_for_so_many_files(files: int, refused: bool) -> None:
    """At each change of the pod: four hundred files of annotations took the agent nine seconds every time."""
    made = pod(volumes=[{"name": "v", "downwardAPI": {"items": _FIELDS[:files]}}])
    made.meta["annotations"] = {"a": "x" * 200_000}
    _, problems = plan_updates(made, SOURCES, NODE)
    assert bool(problems) is refused


def test_many_mounts_in_one_volume_take_no_time() -> None:
    own = [{"name": "v", "mountPath": "/" * i} for i in range(1, 800)]
    others = [{"name": "w", "mountPath": f"/a{i}"} for i in range(800)]
    begin = time.process_time()
    found = nested_mount_points(pod(container(volumeMounts=[*own, *others])))
    assert len(found["v"]) == 800 and "w" not in found
    assert time.process_time() - begin < 5


def test_too_many_mounts_in_volumes_are_refused() -> None:
    own = [{"name": f"v{i}", "mountPath": "/" * (i + 1)} for i in range(200)]
    others = [{"name": "w", "mountPath": f"/a{i}"} for i in range(200)]
    with pytest.raises(Invalid, match="mounted in one another"):
        nested_mount_points(pod(container(volumeMounts=[*own, *others])))


def test_many_volumes_of_many_containers_take_no_time() -> None:
    """The limit of the pod's memory bounds each volume in memory: it is added up once, not for each of them."""
    many = [container(f"c{i}", resources={"limits": {"memory": "1Mi"}}) for i in range(1000)]
    volumes = [{"name": f"v{i}", "emptyDir": {"medium": "Memory"}} for i in range(500)]
    volumes += [{"name": f"w{i}", "secret": {"secretName": "big"}} for i in range(50)]
    begin = time.process_time()
    plans = plan_volumes(pod(*many, volumes=volumes), SOURCES, NODE)
    assert {plan.size for plan in plans if isinstance(plan, (EmptyDir, AtomicVolume))} == {1000 << 20}
    assert time.process_time() - begin < 2
