"""Volumes of the CSI driver on real loop devices: made once, mounted, grown, copied, and gone without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.cluster.work import volume_devices
from csi import names
from csi.edge import file_systems, images, targets
from csi.model import EPHEMERAL, Image, Kind
from nodelib import mounts
from nodelib.errors import Permanent
from nodelib.json_values import Json
from nodelib.threads import alone
from tests.netns.csi_world import BLOCK, MIB, MOUNT, Driver, driver, may_grow_mounted
from tests.netns.mount_namespace import isolated
from tests.waiting import until_sync

pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: loop devices")]

XFS: Json = {"mount": {"fs_type": "xfs"}, "access_mode": {"mode": 1}}
has_xfs = pytest.mark.skipif(shutil.which("mkfs.xfs") is None, reason="needs xfsprogs")


def write(path: Path, text: str) -> None:
    path.write_text(text)
    os.sync()


def test_data_outlives_the_pod_and_the_driver(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            assert one.create() == number
            one.stage(number)
            target = one.publish(number)
            write(target / "greeting", "hello")
            assert len(one.loops(number)) == 1

            again = Driver(tmp_path)  # the old one was killed: nothing of it is in memory
            again.recover()
            again.stage(number)
            assert again.publish(number) == target and (target / "greeting").read_text() == "hello"
            assert len(mounts.mounts_below(str(target))) == 1
            again.unpublish(number)
            again.unpublish(number)
            again.unstage(number)
            again.unstage(number)
            assert not target.exists() and again.loops(number) == []

            again.stage(number)
            assert (again.publish(number, "next") / "greeting").read_text() == "hello"
            again.unpublish(number, "next")
            again.unstage(number)
            again.call("Controller.DeleteVolume", volume_id=number)
            again.call("Controller.DeleteVolume", volume_id=number)
            assert again.left() == []

    run()


def test_a_pod_cannot_write_more_than_the_size(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create(size=16 * MIB)
            one.stage(number)
            target = one.publish(number)
            with pytest.raises(OSError, match="No space left"), open(target / "big", "wb") as file:
                file.write(b"x" * 17 * MIB)
            usage = one.call("Node.NodeGetVolumeStats", volume_id=number, volume_path=str(target))["usage"]
            size = next(entry for entry in usage if entry["unit"] == 1)
            assert 10 * MIB < size["total"] < 16 * MIB and size["available"] < 2 * MIB

    run()


def test_read_only(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            write(one.stage(number) / "a", "1")
            target = one.publish(number, readonly=True)
            assert (target / "a").read_text() == "1"
            with pytest.raises(OSError, match="Read-only"):
                (target / "b").touch()
            (one.publish(number, "writer") / "b").touch()

    run()


def test_a_block_device(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create(capability=BLOCK)
            one.stage(number, BLOCK)
            target = one.publish(number, capability=BLOCK)
            assert stat.S_ISBLK(target.stat().st_mode)
            handle = os.open(target, os.O_RDWR)
            assert os.lseek(handle, 0, os.SEEK_END) == 32 * MIB
            os.pwrite(handle, b"from the pod", 0)
            os.fsync(handle)
            os.close(handle)
            assert one.refused("Controller.DeleteVolume", volume_id=number).code == "FAILED_PRECONDITION"
            asked = {"required_bytes": 48 * MIB}
            one.call("Node.NodeExpandVolume", volume_id=number, volume_path=str(target), capacity_range=asked)
            handle = os.open(target, os.O_RDONLY)
            assert os.lseek(handle, 0, os.SEEK_END) == 48 * MIB
            os.close(handle)
            one.unpublish(number)
            one.unstage(number)
            assert not target.exists() and one.loops(number) == []
            assert one.image(number).read_bytes()[:12] == b"from the pod"

    run()


def test_an_offline_expansion(tmp_path: Path) -> None:
    """The claim grew while no pod used it: NodeExpandVolume comes after the next NodeStageVolume."""

    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            write(one.stage(number) / "kept", "1")
            before = os.statvfs(one.folder / f"stage-{number}").f_blocks
            one.unstage(number)
            image = asyncio.run(one.disk.image(Kind.VOLUME, number))
            assert image is not None
            asyncio.run(one.disk.grow(_with_size(image, 64 * MIB)))
            staged = one.stage(number)
            assert os.statvfs(staged).f_blocks > 1.8 * before and (staged / "kept").read_text() == "1"

    run()


def _with_size(image: Image, size: int) -> Image:
    return Image(image.id, image.name, size, image.mode, image.fs_type, image.source, image.created)


def test_an_expansion_of_a_mounted_ext4(tmp_path: Path) -> None:
    """It grows, or, where root lacks CAP_SYS_RESOURCE, the caller is told so and the next pod has it grown."""

    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            staged = one.stage(number)
            before = os.statvfs(staged).f_blocks
            asked = {"volume_id": number, "volume_path": str(staged), "capacity_range": {"required_bytes": 64 * MIB}}
            if may_grow_mounted():
                assert one.call("Node.NodeExpandVolume", **asked)["capacity_bytes"] == 64 * MIB
            else:
                refused = one.refused("Node.NodeExpandVolume", **asked)
                assert refused.code == "FAILED_PRECONDITION" and "CAP_SYS_RESOURCE" in refused.message
                one.unstage(number)
                one.stage(number)
                assert one.call("Node.NodeExpandVolume", **asked)["capacity_bytes"] == 64 * MIB
            assert os.statvfs(staged).f_blocks > 1.8 * before

    run()


def test_what_could_not_grow_while_it_was_used_grows_for_the_next_pod(tmp_path: Path) -> None:
    """A kubelet does not stage a volume again as long as it goes from one pod to the next."""

    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            staged = one.stage(number)
            write(one.publish(number) / "kept", "1")
            image = asyncio.run(one.disk.image(Kind.VOLUME, number))
            assert image is not None
            with contextlib.suppress(Permanent):
                asyncio.run(one.disk.grow(_with_size(image, 64 * MIB)))
            one.publish(number, "other")
            one.unpublish(number)
            one.unpublish(number, "other")
            target = one.publish(number, "next")
            size = os.statvfs(target)
            assert size.f_blocks * size.f_frsize > 50 * MIB and (target / "kept").read_text() == "1"
            assert sorted(mounts.mounts_of(os.stat(target).st_dev)) == sorted([str(staged), str(target)])

    run()


@contextlib.contextmanager
def mounted_elsewhere_too() -> Iterator[None]:
    """A process that has all mounts of this one for itself, as a container with a hostPath of the node's files has."""
    argv = ["unshare", "-m", "--propagation", "private", "sh", "-c", "echo; exec cat"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        holder.stdout.readline()
        yield
        holder.stdin.close()


def test_a_file_system_that_is_still_mounted_elsewhere_is_not_repaired_or_grown_below_it(tmp_path: Path) -> None:
    """Unmounted here, it is alive there: fsck and resize2fs would write to the image below it."""

    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            staged = one.stage(number)
            image = asyncio.run(one.disk.image(Kind.VOLUME, number))
            assert image is not None
            (staged / "first").write_text("1")
            with mounted_elsewhere_too():
                one.unstage(number)
                with contextlib.suppress(Permanent):
                    asyncio.run(one.disk.grow(_with_size(image, 64 * MIB)))
                (one.stage(number) / "second").write_text("2")
                one.publish(number)  # grows what is idle, if it can
                one.unpublish(number)
                one.unstage(number)
            until_sync(lambda: one.loops(number) == [])
            done = subprocess.run(["e2fsck", "-f", "-n", one.image(number)], capture_output=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            staged = one.stage(number)
            size = os.statvfs(staged)
            assert size.f_blocks * size.f_frsize > 50 * MIB, "it has grown once nobody had it"
            assert [(staged / name).read_text() for name in ("first", "second")] == ["1", "2"]

    run()


def test_what_is_still_mounted_elsewhere_is_not_copied(tmp_path: Path) -> None:
    """What was written is not all in the image, and here is no mount by which it could be frozen."""

    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            (one.stage(number) / "a").write_text("1")
            with mounted_elsewhere_too():
                one.unstage(number)
                refused = one.refused("Controller.CreateSnapshot", source_volume_id=number, name="s")
                assert refused.code == "FAILED_PRECONDITION" and "mount namespace" in refused.message
            until_sync(lambda: one.loops(number) == [])
            assert one.call("Controller.CreateSnapshot", source_volume_id=number, name="s")["snapshot"]

    run()


def test_a_volume_whose_staging_was_cut_off_is_staged_when_it_is_published(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            write(one.stage(number) / "kept", "1")
            one.unstage(number)
            assert (one.publish(number) / "kept").read_text() == "1"
            elsewhere = {"volume_id": number, "staging_target_path": str(tmp_path / "x"), "volume_capability": MOUNT}
            refused = one.refused("Node.NodePublishVolume", target_path=str(tmp_path / "y"), **elsewhere)
            assert refused.code == "FAILED_PRECONDITION"

    run()


@has_xfs
def test_xfs_grows_while_it_is_mounted(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create(size=320 * MIB, capability=XFS)
            staged = one.stage(number, XFS)
            write(staged / "kept", "1")
            before = os.statvfs(staged).f_blocks
            asked = {"required_bytes": 640 * MIB}
            one.call("Node.NodeExpandVolume", volume_id=number, volume_path=str(staged), capacity_range=asked)
            assert os.statvfs(staged).f_blocks > 1.8 * before and (staged / "kept").read_text() == "1"
            made = one.call("Controller.CreateSnapshot", source_volume_id=number, name="s")["snapshot"]
            source = {"snapshot": {"snapshot_id": made["snapshot_id"]}}
            other = one.create("copy", 640 * MIB, XFS, volume_content_source=source)
            assert (one.stage(other, XFS) / "kept").read_text() == "1"  # both are mounted, with one UUID

    run()


def test_snapshots_and_clones(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            staged = one.stage(number)
            write(staged / "a", "before")
            made = one.call("Controller.CreateSnapshot", source_volume_id=number, name="s")["snapshot"]
            assert made["ready_to_use"] and made["size_bytes"] == 32 * MIB
            write(staged / "a", "after")  # it is not frozen any more
            source = {"snapshot": {"snapshot_id": made["snapshot_id"]}}
            restored = one.create("restored", 64 * MIB, volume_content_source=source)
            clone = one.create("clone", volume_content_source={"volume": {"volume_id": number}})
            assert (one.stage(restored) / "a").read_text() == "before"
            assert (one.stage(clone) / "a").read_text() == "after"
            assert os.statvfs(one.folder / f"stage-{restored}").f_blocks > 1.8 * os.statvfs(staged).f_blocks
            listed = one.call("Controller.ListSnapshots", source_volume_id=number)["entries"]
            assert [entry["snapshot"]["snapshot_id"] for entry in listed] == [made["snapshot_id"]]
            one.call("Controller.DeleteSnapshot", snapshot_id=made["snapshot_id"])
            assert one.call("Controller.ListSnapshots")["entries"] == []
            refused = one.refused(
                "Controller.CreateVolume", name="x", volume_capabilities=[MOUNT], volume_content_source=source
            )
            assert refused.code == "RESOURCE_EXHAUSTED", "it may be on another node, which the scheduler then tries"

    run()


def test_nobody_writes_while_a_volume_is_copied(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            staged = one.stage(number)
            (staged / "a").write_text("in memory only")
            asyncio.run(copy_beside_a_writer(one, number, staged))

    async def copy_beside_a_writer(one: Driver, number: str, staged: Path) -> None:
        image = await one.disk.image(Kind.VOLUME, number)
        assert image is not None
        async with one.disk.at_rest(image):
            writing = asyncio.create_task(alone((staged / "b").write_text, "later"))
            done, _ = await asyncio.wait([writing], timeout=0.3)
            assert not done
            copied = one.image(number).read_bytes()
            assert b"in memory only" in copied and b"later" not in copied
        assert await asyncio.wait_for(writing, 20) == 5

    run()


def test_a_snapshot_of_a_block_device_in_use_is_refused(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create(capability=BLOCK)
            one.stage(number, BLOCK)
            one.publish(number, capability=BLOCK)
            refused = one.refused("Controller.CreateSnapshot", source_volume_id=number, name="s")
            assert refused.code == "FAILED_PRECONDITION" and "Delete the pod" in refused.message
            one.unpublish(number)
            made = one.call("Controller.CreateSnapshot", source_volume_id=number, name="s")["snapshot"]
            source = {"snapshot": {"snapshot_id": made["snapshot_id"]}}
            asked = {"volume_capabilities": [MOUNT], "volume_content_source": source}
            wrong = one.refused("Controller.CreateVolume", name="as-mount", **asked)
            assert wrong.code == "INVALID_ARGUMENT" and "made for block" in wrong.message

    run()


@has_xfs
def test_a_block_device_in_use_is_copied_as_of_one_moment_where_blocks_are_shared(tmp_path: Path) -> None:
    """A writer makes one place newer and then the other: no copy has the second without the first."""

    @isolated
    def run() -> None:
        image, on_xfs = tmp_path / "xfs.img", tmp_path / "xfs"
        on_xfs.mkdir()
        with open(image, "wb") as file:
            file.truncate(400 * MIB)
        subprocess.run(["mkfs.xfs", "-q", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, on_xfs], check=True)
        with driver(on_xfs) as one:
            number = one.create(capability=BLOCK)
            one.stage(number, BLOCK)
            target = one.publish(number, capability=BLOCK)
            stop = threading.Event()
            writing = threading.Thread(target=_write_in_order, args=(target, stop))
            writing.start()
            try:
                for count in range(20):
                    asked = {"source_volume_id": number, "name": f"s{count}"}
                    made = one.call("Controller.CreateSnapshot", **asked)["snapshot"]["snapshot_id"]
                    with open(one.image(names.id_in(made), Kind.SNAPSHOT), "rb") as copied:
                        first = int.from_bytes(copied.read(8), "big")
                        copied.seek(_FAR)
                        second = int.from_bytes(copied.read(8), "big")
                    assert first - 1 <= second <= first, (first, second)
            finally:
                stop.set()
                writing.join()
            assert first > 1, "it was written to meanwhile"

    run()


_FAR = 16 * MIB


def _write_in_order(device: Path, stop: threading.Event) -> None:
    handle, count = os.open(device, os.O_WRONLY | os.O_DSYNC), 0
    while not stop.is_set():
        count += 1
        for place in (0, _FAR):
            os.pwrite(handle, count.to_bytes(8, "big"), place)
    os.close(handle)


def test_an_inline_volume_goes_with_its_pod(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            handle, target = "csi-" + "0f" * 32, str(tmp_path / "pod")
            context = {EPHEMERAL: "true", "size": "24Mi", "csi.storage.k8s.io/pod.name": "p"}
            asked = {"volume_id": handle, "target_path": target, "volume_capability": MOUNT, "volume_context": context}
            one.call("Node.NodePublishVolume", **asked)
            one.call("Node.NodePublishVolume", **asked)
            assert 16 * MIB < os.statvfs(target).f_blocks * os.statvfs(target).f_frsize < 24 * MIB
            assert one.call("Controller.ListVolumes")["entries"] == []
            assert one.call("Node.NodeGetVolumeStats", volume_id=handle, volume_path=target)["usage"]
            one.call("Node.NodeUnpublishVolume", volume_id=handle, target_path=target)
            one.call("Node.NodeUnpublishVolume", volume_id=handle, target_path=target)
            assert one.left() == [] and not os.path.exists(target)

    run()


def test_what_is_mounted_elsewhere_is_not_touched(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            other = tmp_path / "other"
            other.mkdir()
            mounts.mount("t", str(other), "tmpfs")
            (other / "kept").touch()
            one.refused("Node.NodeUnpublishVolume", volume_id=number, target_path=str(other))
            one.refused("Node.NodeUnstageVolume", volume_id=number, staging_target_path=str(other))
            assert (other / "kept").exists()
            link = tmp_path / "stage-link"
            link.symlink_to(other)
            asked = {"volume_id": number, "volume_capability": MOUNT}
            refused = one.refused("Node.NodeStageVolume", staging_target_path=str(link), **asked)
            assert refused.code == "INVALID_ARGUMENT" and len(mounts.mounts_below(str(other))) == 1

    run()


_STEPS = {"image": (os, "ftruncate"), "mkfs": (file_systems, "make"), "commit": (os, "rename")}


@pytest.mark.parametrize("step", _STEPS)
def test_a_driver_that_is_killed_leaves_no_half_of_a_volume(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        os._exit(77)

    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            child = os.fork()
            if child == 0:
                where, name = {"image": (os, "ftruncate"), "mkfs": (file_systems, "make"), "commit": (os, "rename")}[
                    step
                ]
                monkeypatch.setattr(where, name, die)
                one.create()
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77
            assert [name for name in one.left() if "/." in name] != []
            assert one.call("Controller.ListVolumes")["entries"] == []
            number = one.create()
            assert one.left() == [f"volumes/{number}"]
            assert one.stage(number)

    run()


def test_a_driver_that_is_killed_before_it_mounts_leaves_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            child = os.fork()
            if child == 0:
                monkeypatch.setattr(targets, "mount", lambda *_: os._exit(77))
                one.stage(number)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77
            until_sync(lambda: one.loops(number) == [])
            assert one.stage(number)

    run()


def test_a_driver_that_is_killed_while_it_copies_leaves_nothing_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            staged = one.stage(number)
            child = os.fork()
            if child == 0:
                monkeypatch.setattr(images, "copy", lambda *_, **__: os._exit(77))
                one.call("Controller.CreateSnapshot", source_volume_id=number, name="s")
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77
            with pytest.raises(OSError, match="busy"):
                os.close(file_systems.freeze(str(staged)))  # it is frozen; to write to it would wait for ever
            Driver(tmp_path).recover()
            os.close(file_systems.freeze(str(staged)))
            file_systems.thaw(str(staged))
            assert one.left() == [f"volumes/{number}"]

    run()


def test_a_full_disk(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        small = tmp_path / "small"
        small.mkdir()
        mounts.mount("small", str(small), "tmpfs", data=f"size={80 * MIB}")
        with driver(small) as one:
            assert one.call("Controller.GetCapacity")["available_capacity"] > 70 * MIB
            number = one.create(size=48 * MIB)
            left = one.call("Controller.GetCapacity")["available_capacity"]
            assert left < 33 * MIB  # the rest is promised, though the image is sparse
            refused = one.refused(
                "Controller.CreateVolume",
                name="two",
                capacity_range={"required_bytes": 48 * MIB},
                volume_capabilities=[MOUNT],
            )
            assert refused.code == "RESOURCE_EXHAUSTED" and "left on this node" in refused.message
            staged = one.stage(number)
            asked = {"volume_path": str(staged), "capacity_range": {"required_bytes": 96 * MIB}}
            refused = one.refused("Node.NodeExpandVolume", volume_id=number, **asked)
            assert refused.code == "OUT_OF_RANGE", "for good: a pod must not wait for it to grow"
            assert "left on this node" in refused.message and "another size" in refused.message
            one.unstage(number)
            (small / "ballast").write_bytes(b"x" * (os.statvfs(small).f_bavail * 4096 - 4096))
            failed = one.refused("Controller.CreateSnapshot", source_volume_id=number, name="s")
            assert failed.code == "RESOURCE_EXHAUSTED"
            assert one.left() == [f"volumes/{number}"]

    run()


def test_a_mount_that_fails_leaves_no_device(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            with open(one.image(number), "r+b") as file:
                file.write(b"\0" * 4096)
            asked = {"volume_id": number, "volume_capability": MOUNT, "staging_target_path": str(tmp_path / "s")}
            refused = one.refused("Node.NodeStageVolume", **asked)
            assert "e2fsck" in refused.message
            assert one.loops(number) == []

    run()


def test_a_damaged_record_is_no_volume_and_is_kept(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            record = one.image(number).parent / "record.json"
            record.write_text("{")
            assert one.call("Controller.ListVolumes")["entries"] == []
            asked = {"volume_id": number, "volume_capability": MOUNT, "staging_target_path": str(tmp_path / "s")}
            assert "damaged" in one.refused("Node.NodeStageVolume", **asked).message
            one.recover()
            assert one.image(number).exists()

    run()


def test_down_thaws_what_a_killed_driver_froze(tmp_path: Path) -> None:
    """Who freezes a file system keeps it in the kernel after its last unmount, and its device with it."""

    @isolated
    def run() -> None:
        node = tmp_path / "node1"
        folder = node / "kubelet/plugins/csi.nodewright.local"
        folder.mkdir(parents=True)
        with driver(folder) as one:
            number = one.create()
            staged = one.stage(number)
            os.close(file_systems.freeze(str(staged)))
            mounts.unmount(str(staged), mounts.MNT_DETACH)
            volume_devices.detach(str(node))
            until_sync(lambda: one.loops(number) == [])

    run()


def test_a_volume_that_was_frozen_when_its_node_ended_is_thawed_with_the_next_mount(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            staged = one.stage(number)
            os.close(file_systems.freeze(str(staged)))
            mounts.unmount(str(staged), mounts.MNT_DETACH)
            assert one.stage(number) == staged
            os.close(file_systems.freeze(str(staged)))
            file_systems.thaw(str(staged))

    run()


def test_down_leaves_no_loop_device_of_a_block_volume(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        node = tmp_path / "node1"
        folder = node / "kubelet/plugins/csi.nodewright.local"
        folder.mkdir(parents=True)
        with driver(folder) as one:
            number = one.create(capability=BLOCK)
            one.stage(number, BLOCK)
            target = one.publish(number, capability=BLOCK)
            assert len(one.loops(number)) == 1
            mounts.unmount(str(target))
            assert volume_devices.detach(str(node)) == 1
            assert one.loops(number) == [] and volume_devices.detach(str(node)) == 0

    run()
