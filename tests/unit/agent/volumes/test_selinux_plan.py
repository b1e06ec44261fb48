"""With which SELinux context a volume is mounted: as the tables of upstream's desired state have it."""

from __future__ import annotations

from typing import Any

import pytest

from agent.common.model.pods import Pod
from agent.common.model.selinux import Selinux
from agent.volumes.model.csi import CsiVolume
from agent.volumes.model.selinux import Context
from agent.volumes.plan.selinux import MultipleLabels, access_mode, file_context, mount_context
from nodelib.errors import Invalid
from nodelib.json_values import Json
from tests.builders.pods import container, pod

MACHINE = Selinux("system_u:object_r:container_file_t:s0")
LEVEL = {"level": "s0:c1,c2"}
WHOLE = {"user": "system_u", "role": "object_r", "type": "container_t", **LEVEL}
LABEL = "system_u:object_r:container_file_t:s0:c1,c2"
ABLE, UNABLE = {"spec": {"seLinuxMount": True}}, {"spec": {"seLinuxMount": False}}
MOUNT = [{"name": "v", "mountPath": "/v"}]


def volume(*modes: str, ephemeral: bool = False) -> CsiVolume:
    return CsiVolume("v", "pv", "drv", "h", ephemeral=ephemeral, access_modes=modes)


def subject(options: Json | None, policy: str | None = None, *own: Json | None) -> Pod:
    """A pod with these options, and a container for each of `own`, one without any if there is none."""
    contexts: list[Any] = [{"seLinuxOptions": one} if one else None for one in own or (None,)]
    made = [
        container(f"c{number}", volumeMounts=MOUNT, securityContext=context) for number, context in enumerate(contexts)
    ]
    return pod(*made, securityContext={"seLinuxOptions": options, "seLinuxChangePolicy": policy})


@pytest.mark.parametrize(
    ("every", "driver", "mode", "options", "policy", "mounted"),
    [
        (False, ABLE, "ReadWriteOncePod", WHOLE, None, LABEL),
        (False, ABLE, "ReadWriteOncePod", LEVEL, None, LABEL),
        (False, ABLE, "ReadWriteOncePod", None, None, ""),
        (False, ABLE, "ReadWriteOncePod", {}, None, ""),
        (False, ABLE, "ReadWriteOncePod", {"type": "t"}, None, ""),
        (False, UNABLE, "ReadWriteOncePod", WHOLE, None, ""),
        (False, None, "ReadWriteOncePod", WHOLE, None, ""),
        (False, ABLE, "ReadWriteMany", WHOLE, None, ""),
        (False, ABLE, "ReadWriteMany", WHOLE, "MountOption", ""),
        (False, ABLE, "ReadWriteOncePod", WHOLE, "Recursive", ""),
        (False, ABLE, "ReadWriteOncePod", WHOLE, "MountOption", LABEL),
        (True, ABLE, "ReadWriteMany", WHOLE, None, LABEL),
        (True, ABLE, "ReadWriteMany", WHOLE, "MountOption", LABEL),
        (True, ABLE, "ReadWriteMany", WHOLE, "Recursive", ""),
        (True, ABLE, "ReadWriteOncePod", WHOLE, "Recursive", ""),
        (True, ABLE, "ReadWriteOncePod", WHOLE, "MountOption", LABEL),
        (True, UNABLE, "ReadWriteMany", WHOLE, None, ""),
    ],
)
def test_of_one_pod(
    every: bool, driver: Json | None, mode: str, options: Json | None, policy: str | None, mounted: str
) -> None:
    found = mount_context(subject(options, policy), volume(mode), driver, MACHINE, every_mode=every)
    assert found.mounted == mounted


def test_what_a_pod_wants_is_known_where_it_is_not_mounted_so() -> None:
    found = mount_context(subject(WHOLE), volume("ReadWriteMany"), ABLE, MACHINE, every_mode=False)
    assert found == Context(wanted=LABEL, mounted="")
    mixed = volume("ReadWriteOncePod", "ReadWriteMany")
    assert mount_context(subject(WHOLE), mixed, ABLE, MACHINE, every_mode=False).mounted == ""
    inline = volume(ephemeral=True)
    assert mount_context(subject(WHOLE), inline, ABLE, MACHINE, every_mode=True) == Context(wanted=LABEL, mounted="")


@pytest.mark.parametrize(
    ("of_pod", "own", "wanted"),
    [
        pytest.param(WHOLE, (None, LEVEL), LABEL, id="the same in other words"),
        pytest.param(None, (LEVEL, None), LABEL, id="a container without any does not count"),
        pytest.param(WHOLE, ({"level": "s0:c9"},), "system_u:object_r:container_file_t:s0:c9", id="its own win"),
        pytest.param(WHOLE, ({**LEVEL, "user": "u"},), "u:object_r:container_file_t:s0:c1,c2", id="another user"),
        pytest.param(WHOLE, ({**LEVEL, "type": "spc_t"},), LABEL, id="the type is that of processes"),
        pytest.param(WHOLE, (None, {"level": "s0:c9"}), None, id="two levels"),
        pytest.param(WHOLE, (None, {"type": "t"}), None, id="one without a level"),
    ],
)
def test_of_several_containers(of_pod: Json | None, own: tuple[Json | None, ...], wanted: str | None) -> None:
    who = subject(of_pod, None, *own)
    if wanted is None:
        with pytest.raises(MultipleLabels, match="multiple SELinux labels found: "):
            mount_context(who, volume("ReadWriteOnce"), ABLE, MACHINE, every_mode=True)
    else:
        assert mount_context(who, volume("ReadWriteOnce"), ABLE, MACHINE, every_mode=True).mounted == wanted


def test_only_containers_that_mount_it_count() -> None:
    other = container("other", securityContext={"seLinuxOptions": {"level": "s0:c9"}})
    device = container("device", volumeDevices=[{"name": "v", "devicePath": "/dev/v"}])
    who = pod(other, device, securityContext={"seLinuxOptions": WHOLE})
    assert mount_context(who, volume("ReadWriteOnce"), ABLE, MACHINE, every_mode=True) == Context()


@pytest.mark.parametrize(
    "options",
    [
        {"level": 's0",exec,context="x'},
        {"level": "s0\n"},
        {"level": "s0:c1", "user": "a b"},
        {"level": "s" * 5000},
        {"level": "ß"},
    ],
)
def test_options_that_would_become_other_mount_options_are_refused(options: Json) -> None:
    with pytest.raises(Invalid, match="failed to construct SELinux label"):
        file_context(options, MACHINE)


def test_a_policy_without_contexts_of_containers_mounts_nothing_so() -> None:
    assert file_context(WHOLE, Selinux()) == "" == file_context(WHOLE, Selinux("object_r"))


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (volume(ephemeral=True), "inline"),
        (volume("ReadWriteOnce", "ReadWriteMany"), "RWX"),
        (volume("ReadWriteOnce", "ReadOnlyMany"), "ROX"),
        (volume("ReadWriteOnce"), "RWO"),
        (volume("ReadWriteOncePod"), "RWOP"),
        (volume(), ""),
    ],
)
def test_access_modes_in_metrics(of: CsiVolume, name: str) -> None:
    assert access_mode(of) == name
