"""Local PersistentVolumes: what is wanted, whether a device is formatted, and how it is mounted."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from agent.volumes.model.local import Device, GlobalMount, Inspection, LocalVolume
from agent.volumes.model.volumes import HostPath
from agent.volumes.plan import local_volumes as plan
from agent.volumes.plan.local_volumes import Staging
from nodelib.errors import Invalid, Temporary
from nodelib.json_values import Json
from tests.builders.pods import pod

DEVICE = Device("/dev/sdz", 7)
VOLUME = LocalVolume("data", "pv-1", "/dev/sdz", claim="c")
MIB = 1 << 20


def wanted(local: Json, *, name: str = "pv-1", annotations: Json | None = None, **spec: object) -> object:
    volume = {"metadata": {"name": name, "annotations": annotations}, "spec": {"local": local, **spec}}
    return plan.local_volume(pod(), "data", "c", volume, read_only=False)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(wanted({"path": "/dev/sdz"}), VOLUME, id="ext4 is the default"),
        pytest.param(wanted({"path": "/dev/sdz", "fsType": ""}), VOLUME, id="empty type"),
        pytest.param(wanted({"path": "/dev/sdz", "fsType": "xfs"}), replace(VOLUME, fs_type="xfs"), id="xfs"),
        pytest.param(
            wanted({"path": "/dev/sdz"}, mountOptions=["noatime"]),
            replace(VOLUME, mount_options=("noatime",)),
            id="options",
        ),
        pytest.param(
            wanted(
                {"path": "/dev/sdz"},
                annotations={"volume.beta.kubernetes.io/mount-options": "sync,noexec"},
                mountOptions=["noatime"],
            ),
            replace(VOLUME, mount_options=("sync", "noexec")),
            id="the annotation wins",
        ),
        pytest.param(
            wanted({"path": "/dev/sdz"}, volumeMode="Block"),
            replace(VOLUME, block=True),
            id="raw device",
        ),
    ],
)
def test_what_is_wanted(found: object, expected: object) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("local", "name"),
    [
        pytest.param({"path": "dev/sdz"}, "pv-1", id="relative"),
        pytest.param({"path": "/dev/../etc"}, "pv-1", id="backsteps"),
        pytest.param({"path": "/dev/sdz"}, "../../../etc", id="a name that leads elsewhere"),
        pytest.param({"path": "/dev/sdz"}, "..", id="the parent"),
        pytest.param({"path": "/dev/sdz", "fsType": "x/../../../tmp/evil"}, "pv-1", id="a type that is a path"),
        pytest.param({"path": "/dev/sdz", "fsType": "-V"}, "pv-1", id="a type that is an option"),
    ],
)
def test_values_that_lead_elsewhere_are_refused(local: Json, name: str) -> None:
    with pytest.raises(Invalid) as raised:
        wanted(local, name=name)
    assert raised.value.action


@pytest.mark.parametrize(
    ("found", "content"),
    [
        pytest.param(Inspection(2, "", MIB), "", id="nothing"),
        pytest.param(Inspection(0, "DEVNAME=/dev/sdz\nTYPE=xfs\n", MIB), "xfs", id="file system"),
        pytest.param(Inspection(0, "TYPE=LVM2_member\n", MIB), "LVM2_member", id="LVM"),
        pytest.param(Inspection(0, "TYPE=crypto_LUKS\n", MIB), "crypto_LUKS", id="encrypted"),
        pytest.param(Inspection(0, "PTTYPE=dos\n", MIB), plan.PARTITIONS, id="partitions"),
        pytest.param(Inspection(0, "TYPE=ext4\nPTTYPE=dos\n", MIB), plan.PARTITIONS, id="both"),
        pytest.param(Inspection(0, "TYPE=ext4\n", 0, "Input/output error"), "ext4", id="known, then broken"),
    ],
)
def test_content(found: Inspection, content: str) -> None:
    assert plan.content(DEVICE, found) == content


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(Inspection(2, "", 0), id="no disk behind it"),
        pytest.param(Inspection(2, "", MIB, "Input/output error"), id="cannot be read"),
        pytest.param(Inspection(8, "ambivalent result", MIB), id="two signatures"),
        pytest.param(Inspection(4, "usage", MIB), id="blkid failed"),
        pytest.param(Inspection(-9, "", MIB), id="blkid was killed"),
        pytest.param(Inspection(0, "DEVNAME=/dev/sdz\n", MIB), id="blkid says nothing of it"),
    ],
)
def test_a_device_is_not_empty_because_nothing_is_known_of_it(found: Inspection) -> None:
    with pytest.raises(Temporary, match="failed to get disk format of disk /dev/sdz") as raised:
        plan.content(DEVICE, found)
    assert raised.value.action


@pytest.mark.parametrize(
    ("fs_type", "argv"),
    [
        ("ext4", ("mkfs.ext4", "-F", "-m0", "/dev/sdz")),
        ("ext3", ("mkfs.ext3", "-F", "-m0", "/dev/sdz")),
        ("xfs", ("mkfs.xfs", "-f", "/dev/sdz")),
        ("btrfs", ("mkfs.btrfs", "/dev/sdz")),
    ],
)
def test_format_command(fs_type: str, argv: tuple[str, ...]) -> None:
    assert plan.format_command(replace(VOLUME, fs_type=fs_type), DEVICE) == argv


@pytest.mark.parametrize("volume", [replace(VOLUME, read_only=True), replace(VOLUME, mount_options=("ro",))])
def test_what_is_only_read_is_neither_formatted_nor_repaired(volume: LocalVolume) -> None:
    with pytest.raises(Temporary, match="in read-only mode"):
        plan.format_command(volume, DEVICE)
    assert plan.check_command(volume, DEVICE) == ()


@pytest.mark.parametrize(
    ("volume", "options"),
    [
        pytest.param(VOLUME, (), id="none"),
        pytest.param(replace(VOLUME, read_only=True), ("-o", "ro"), id="read-only"),
        pytest.param(
            replace(VOLUME, read_only=True, mount_options=("sync", "noatime")),
            ("-o", "noatime,ro,sync"),
            id="sorted",
        ),
    ],
)
def test_mount_command(volume: LocalVolume, options: tuple[str, ...]) -> None:
    assert plan.mount_command(volume, DEVICE, "/g") == ("mount", "-t", "ext4", *options, "--", "/dev/sdz", "/g")


@pytest.mark.parametrize(
    ("volume", "mounted", "shared", "expected"),
    [
        pytest.param(VOLUME, None, False, Staging.MOUNT, id="first pod"),
        pytest.param(VOLUME, None, True, Staging.MOUNT, id="after a power failure"),
        pytest.param(VOLUME, GlobalMount(7, "ext4"), True, Staging.KEEP, id="second pod"),
        pytest.param(VOLUME, GlobalMount(9, "ext4"), False, Staging.REPLACE, id="another device"),
        pytest.param(VOLUME, GlobalMount(9, "btrfs"), True, Staging.KEEP, id="btrfs has numbers of its own"),
        pytest.param(VOLUME, GlobalMount(7, "ext4", True), True, Staging.MAKE_WRITABLE, id="the first only reads"),
        pytest.param(
            replace(VOLUME, mount_options=("ro",)), GlobalMount(7, "ext4", True), True, Staging.KEEP, id="always ro"
        ),
        pytest.param(replace(VOLUME, read_only=True), GlobalMount(7, "ext4"), True, Staging.KEEP, id="second reads"),
    ],
)
def test_staging(volume: LocalVolume, mounted: GlobalMount | None, shared: bool, expected: Staging) -> None:
    assert plan.staging(volume, DEVICE, mounted, shared=shared) is expected


def test_a_device_that_others_still_use_is_not_replaced() -> None:
    with pytest.raises(Temporary, match="other pods still use"):
        plan.staging(VOLUME, DEVICE, GlobalMount(9, "ext4"), shared=True)


def test_a_raw_device_is_shown_as_it_is() -> None:
    found = plan.shown(replace(VOLUME, block=True, read_only=True, fs_group=5), "/dev/sdz")
    assert found == HostPath("data", "/dev/sdz", "BlockDevice", read_only=True, block=True)


@pytest.mark.parametrize(
    ("found", "argv"),
    [
        ("ext4", ("resize2fs", "/dev/sdz")),
        ("ext3", ("resize2fs", "/dev/sdz")),
        ("xfs", ("xfs_growfs", "-d", "/g")),
        ("btrfs", ("btrfs", "filesystem", "resize", "max", "/g")),
        pytest.param("", (), id="nothing: mkfs will use the whole device"),
    ],
)
def test_grow_command(found: str, argv: tuple[str, ...]) -> None:
    assert plan.grow_command(found, DEVICE, "/g") == argv


@pytest.mark.parametrize("found", ["ext2", "vfat", plan.PARTITIONS])
def test_what_cannot_grow(found: str) -> None:
    with pytest.raises(Temporary, match=f"resize of format {found} is not supported for device /dev/sdz") as raised:
        plan.grow_command(found, DEVICE, "/g")
    assert raised.value.action


@pytest.mark.parametrize(
    ("mounted", "problem"),
    [
        pytest.param(GlobalMount(7, "ext4"), "", id="its device"),
        pytest.param(GlobalMount(9, "btrfs"), "", id="btrfs has numbers of its own"),
        pytest.param(GlobalMount(9, "ext4"), "another device is mounted", id="another device"),
        pytest.param(None, "nothing is mounted", id="unmounted by somebody"),
    ],
)
def test_only_the_device_that_is_mounted_grows(mounted: GlobalMount | None, problem: str) -> None:
    with pytest.raises(Temporary, match=problem) if problem else nullcontext():
        plan.check_growable(VOLUME, DEVICE, mounted)


@pytest.mark.parametrize(("status", "refused"), [(0, False), (1, False), (4, True), (8, False), (32, False)])
def test_only_errors_that_fsck_could_not_correct_prevent_the_mount(status: int, refused: bool) -> None:
    assert bool(plan.check_problem(DEVICE, status, "bad")) is refused


@pytest.mark.parametrize(("group", "warned"), [(None, False), (5, False), (6, True)])
def test_another_group_than_the_volumes(group: int | None, warned: bool) -> None:
    message = plan.already_mounted(replace(VOLUME, fs_group=group), 5)
    assert bool(message) is warned
    if warned:
        assert message.startswith("The requested fsGroup is 6, but the volume pv-1 has GID 5.")
