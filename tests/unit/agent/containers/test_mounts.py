"""Volume mounts of containers."""

from __future__ import annotations

import pytest

from agent.containers.model import MountPlan
from agent.containers.plan.container import cri_mount
from agent.containers.plan.mounts import mounts_etc_hosts, plan_devices, plan_mounts
from agent.volumes.model.volumes import MountedVolume, SubPath
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from tests.builders.pods import container, pod

VOLUMES = {
    "own": MountedVolume("own", "/vol/own", relabels=True),
    "disk": MountedVolume("disk", "/vol/disk"),
    "conf": MountedVolume("conf", "/vol/conf", read_only=True),
    "img": MountedVolume("img", "", read_only=True, image="r/a:1"),
}


def plan(mount: Json, rro: bool = True, env: dict[str, str] | None = None) -> MountPlan:
    one = container(volumeMounts=[mount])
    return plan_mounts(pod(one), one, VOLUMES, env or {}, recursive_read_only=rro)[0]


@pytest.mark.parametrize(
    ("mount", "expected"),
    [
        pytest.param({"name": "disk", "mountPath": "/d"}, MountPlan("disk", "/d", "/vol/disk"), id="plain"),
        pytest.param({"name": "disk", "mountPath": "d"}, MountPlan("disk", "/d", "/vol/disk"), id="relative target"),
        pytest.param(
            {"name": "conf", "mountPath": "/c"},
            MountPlan("conf", "/c", "/vol/conf", read_only=True),
            id="volume is read-only",
        ),
        pytest.param(
            {"name": "disk", "mountPath": "/d", "readOnly": True},
            MountPlan("disk", "/d", "/vol/disk", read_only=True),
            id="mount is read-only",
        ),
        pytest.param(
            {"name": "disk", "mountPath": "/d", "subPath": "a/b"},
            MountPlan("disk", "/d", sub_path=SubPath("disk", "a/b", 0)),
            id="sub path",
        ),
        pytest.param(
            {"name": "disk", "mountPath": "/d", "subPathExpr": "$(POD)/x"},
            MountPlan("disk", "/d", sub_path=SubPath("disk", "web/x", 0)),
            id="sub path expression",
        ),
        pytest.param(
            {"name": "disk", "mountPath": "/d", "mountPropagation": "Bidirectional"},
            MountPlan("disk", "/d", "/vol/disk", propagation="PROPAGATION_BIDIRECTIONAL"),
            id="propagation",
        ),
        pytest.param(
            {"name": "disk", "mountPath": "/d", "mountPropagation": "HostToContainer"},
            MountPlan("disk", "/d", "/vol/disk", propagation="PROPAGATION_HOST_TO_CONTAINER"),
            id="propagation from the host only",
        ),
        pytest.param(
            {"name": "img", "mountPath": "/i", "subPath": "bin"},
            MountPlan("img", "/i", read_only=True, image="r/a:1", image_sub_path="bin"),
            id="image",
        ),
        pytest.param(
            {"name": "disk", "mountPath": "/d", "readOnly": True, "recursiveReadOnly": "Enabled"},
            MountPlan("disk", "/d", "/vol/disk", read_only=True, recursive_read_only=True),
            id="recursive read-only",
        ),
    ],
)
def test_plans(mount: Json, expected: MountPlan) -> None:
    assert plan(mount, env={"POD": "web"}) == expected


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        pytest.param({"name": "none", "mountPath": "/d"}, 'cannot find volume "none"', id="no such volume"),
        pytest.param({"name": "disk", "mountPath": "/d", "subPath": "/etc"}, "must not be an absolute", id="absolute"),
        pytest.param({"name": "disk", "mountPath": "/d", "subPath": "a/../b"}, "must not contain '..'", id="backsteps"),
        pytest.param({"name": "disk", "mountPath": "/d", "subPath": "a\0b"}, "NUL", id="NUL"),
        pytest.param(
            {"name": "disk", "mountPath": "/d", "subPathExpr": "$(UP)/x"}, "must not contain '..'", id="expanded"
        ),
        pytest.param(
            {"name": "disk", "mountPath": "/d", "subPathExpr": "$(ROOT)/x"}, "absolute", id="expanded, absolute"
        ),
        pytest.param({"name": "disk", "mountPath": "/d", "subPathExpr": "$(NO)"}, "missing value for NO", id="missing"),
        pytest.param(
            {"name": "disk", "mountPath": "/d", "mountPropagation": "Odd"}, "invalid MountPropagation", id="mode"
        ),
        pytest.param(
            {"name": "disk", "mountPath": "/d", "recursiveReadOnly": "Enabled"},
            "but it is not read-only",
            id="rro writable",
        ),
        pytest.param(
            {
                "name": "disk",
                "mountPath": "/d",
                "readOnly": True,
                "recursiveReadOnly": "Enabled",
                "mountPropagation": "Bidirectional",
            },
            "not compatible with propagation",
            id="rro and propagation",
        ),
        pytest.param(
            {"name": "disk", "mountPath": "/d", "readOnly": True, "recursiveReadOnly": "Odd"}, "unknown", id="rro mode"
        ),
    ],
)
def test_refusals(mount: Json, message: str) -> None:
    with pytest.raises(NodewrightError, match=message):
        plan(mount, env={"UP": "..", "ROOT": "/etc"})


def test_recursive_read_only_depends_on_the_runtime() -> None:
    mount = {"name": "disk", "mountPath": "/d", "readOnly": True}
    assert not plan({**mount, "recursiveReadOnly": "IfPossible"}, rro=False).recursive_read_only
    with pytest.raises(NodewrightError, match="not supported by the runtime"):
        plan({**mount, "recursiveReadOnly": "Enabled"}, rro=False)


BLOCK = {"d": MountedVolume("d", "/dev/disk7", block=True), "ro": MountedVolume("ro", "/dev/cd", True, block=True)}


def test_block_volumes_become_devices() -> None:
    one = container(volumeDevices=[{"name": "d", "devicePath": "/dev/x"}, {"name": "ro", "devicePath": "/dev/y"}])
    assert plan_devices(pod(one), one, BLOCK) == [
        {"container_path": "/dev/x", "host_path": "/dev/disk7", "permissions": "mrw"},
        {"container_path": "/dev/y", "host_path": "/dev/cd", "permissions": "r"},
    ]


def test_a_block_volume_is_no_mount_and_a_file_system_no_device() -> None:
    one = container(volumeMounts=[{"name": "d", "mountPath": "/d"}], volumeDevices=[{"name": "disk"}])
    with pytest.raises(NodewrightError, match="volumeMode Block"):
        plan_mounts(pod(one), one, BLOCK, {}, recursive_read_only=True)
    with pytest.raises(NodewrightError, match="is not a block volume"):
        plan_devices(pod(one), one, VOLUMES)


def test_own_hosts_file() -> None:
    assert mounts_etc_hosts(container(volumeMounts=[{"name": "disk", "mountPath": "/etc/hosts"}]))
    assert not mounts_etc_hosts(container(volumeMounts=[{"name": "disk", "mountPath": "/etc"}]))


def test_with_selinux_the_first_mount_of_a_volume_of_ours_is_relabelled() -> None:
    places = [("own", "/a"), ("own", "/b"), ("disk", "/c"), ("img", "/d")]
    one = container(volumeMounts=[{"name": name, "mountPath": path} for name, path in places])
    for selinux, relabelled in ((True, ["/a"]), (False, [])):
        made = plan_mounts(pod(one), one, VOLUMES, {}, recursive_read_only=True, selinux=selinux)
        assert [mount["container_path"] for mount in map(cri_mount, made) if mount.get("selinux_relabel")] == relabelled
