"""Security contexts as CRI takes them."""

from __future__ import annotations

from typing import Any

import pytest

from agent.common.model.pod_settings import PodDefaults
from agent.common.model.pods import ImageFacts
from agent.containers.plan.security import container_context, effective, namespaces, verify_run_as_non_root
from nodelib.errors import Invalid, Permanent
from nodelib.json_values import Json
from tests.builders.pods import container, pod

SETTINGS = PodDefaults("n1")
IMAGE = ImageFacts("img")


def made(of_pod: Json | None = None, own: Json | None = None, image: ImageFacts = IMAGE, **meta: Any) -> Json:
    one = container(securityContext=own) if own is not None else container()
    return container_context(pod(one, meta=meta, securityContext=of_pod or {}), one, image, SETTINGS, users={})


@pytest.mark.parametrize(
    ("of_pod", "own", "expected"),
    [
        pytest.param({}, {}, {}, id="nothing"),
        pytest.param({"runAsUser": 1, "fsGroup": 5}, {}, {"runAsUser": 1}, id="inherits"),
        pytest.param(
            {"runAsUser": 1, "runAsGroup": 2}, {"runAsUser": 3}, {"runAsUser": 3, "runAsGroup": 2}, id="own first"
        ),
        pytest.param({"runAsNonRoot": True}, {"runAsNonRoot": False}, {"runAsNonRoot": False}, id="false is a word"),
        pytest.param({"runAsUser": 1}, {"runAsUser": None}, {"runAsUser": 1}, id="null is none"),
    ],
)
def test_effective(of_pod: Json, own: Json, expected: Json) -> None:
    one = container(securityContext=own)
    assert effective(pod(one, securityContext=of_pod), one) == expected


def test_no_context_is_made_for_root_where_root_is_refused() -> None:
    with pytest.raises(Permanent, match="image will run as root"):
        made({"runAsNonRoot": True})
    assert made({"runAsNonRoot": True, "runAsUser": 5})["run_as_user"] == {"value": 5}


@pytest.mark.parametrize(
    ("of_pod", "own", "image", "expected"),
    [
        pytest.param({}, {}, IMAGE, {"run_as_user": {"value": 0}}, id="image names nobody: root"),
        pytest.param({}, {}, ImageFacts("i", uid=7), {"run_as_user": {"value": 7}}, id="image uid"),
        pytest.param({}, {}, ImageFacts("i", username="bob"), {"run_as_username": "bob"}, id="image user name"),
        pytest.param(
            {"runAsUser": 5}, {}, ImageFacts("i", username="bob"), {"run_as_user": {"value": 5}}, id="pod wins"
        ),
        pytest.param(
            {"runAsUser": 5, "runAsGroup": 6},
            {"runAsUser": 0},
            IMAGE,
            {"run_as_user": {"value": 0}, "run_as_group": {"value": 6}},
            id="container wins, group stays",
        ),
    ],
)
def test_users(of_pod: Json, own: Json, image: ImageFacts, expected: Json) -> None:
    found = made(of_pod, own, image)
    assert {key: found[key] for key in found if key.startswith("run_as")} == expected


@pytest.mark.parametrize(
    ("of_pod", "image", "message"),
    [
        pytest.param({"runAsNonRoot": True}, IMAGE, "image will run as root", id="no user"),
        pytest.param({"runAsNonRoot": True}, ImageFacts("i", uid=0), "image will run as root", id="uid 0"),
        pytest.param({"runAsNonRoot": True}, ImageFacts("i", username="bob"), "non-numeric user", id="name"),
        pytest.param(
            {"runAsNonRoot": True, "runAsUser": 0}, ImageFacts("i", uid=5), "breaks non-root", id="runAsUser 0"
        ),
        pytest.param({"runAsNonRoot": True}, ImageFacts("i", uid=2**40), "invalid user id", id="too large"),
    ],
)
def test_non_root_refuses(of_pod: Json, image: ImageFacts, message: str) -> None:
    with pytest.raises(Permanent, match=message):
        verify_run_as_non_root(pod(securityContext=of_pod), container(), image)


@pytest.mark.parametrize(
    ("of_pod", "image", "user"),
    [
        pytest.param({"runAsNonRoot": True}, ImageFacts("i", uid=5), 5, id="image uid"),
        pytest.param({"runAsNonRoot": True, "runAsUser": 9}, IMAGE, 9, id="runAsUser"),
        pytest.param({}, IMAGE, 0, id="not asked"),
    ],
)
def test_non_root_accepts(of_pod: Json, image: ImageFacts, user: int) -> None:
    context = container_context(pod(securityContext=of_pod), container(), image, PodDefaults("n1"), users={})
    assert context["run_as_user"] == {"value": user}


@pytest.mark.parametrize(
    ("of_pod", "own", "expected"),
    [
        pytest.param({}, {}, {"profile_type": "RuntimeDefault"}, id="default of the node"),
        pytest.param({"seccompProfile": {"type": "Unconfined"}}, {}, {"profile_type": "Unconfined"}, id="pod"),
        pytest.param(
            {"seccompProfile": {"type": "Unconfined"}},
            {"seccompProfile": {"type": "RuntimeDefault"}},
            {"profile_type": "RuntimeDefault"},
            id="container first",
        ),
        pytest.param(
            {},
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "p/a.json"}},
            {"profile_type": "Localhost", "localhost_ref": "/var/lib/kubelet/seccomp/p/a.json"},
            id="localhost",
        ),
    ],
)
def test_seccomp(of_pod: Json, own: Json, expected: Json) -> None:
    assert made(of_pod, own)["seccomp"] == expected


def test_seccomp_default_off() -> None:
    one = container()
    found = container_context(pod(one), one, IMAGE, PodDefaults("n1", seccomp_default=False), users={})
    assert found["seccomp"] == {"profile_type": "Unconfined"}


def test_localhost_profiles_need_names() -> None:
    with pytest.raises(Invalid, match="localhostProfile must be set"):
        made({}, {"seccompProfile": {"type": "Localhost"}})
    with pytest.raises(Invalid, match="missing localhost apparmor"):
        made({}, {"appArmorProfile": {"type": "Localhost"}})


@pytest.mark.parametrize(
    ("own", "meta", "expected"),
    [
        pytest.param({}, {}, {}, id="none"),
        pytest.param(
            {"appArmorProfile": {"type": "RuntimeDefault"}},
            {},
            {"apparmor": {"profile_type": "RuntimeDefault"}, "apparmor_profile": "runtime/default"},
            id="runtime default",
        ),
        pytest.param(
            {},
            {"annotations": {"container.apparmor.security.beta.kubernetes.io/main": "localhost/x"}},
            {"apparmor": {"profile_type": "Localhost", "localhost_ref": "x"}, "apparmor_profile": "localhost/x"},
            id="annotation",
        ),
    ],
)
def test_apparmor(own: Json, meta: Json, expected: Json) -> None:
    found = made({}, own, **meta)
    assert {key: found[key] for key in found if key.startswith("apparmor")} == expected


def test_flags_and_capabilities() -> None:
    found = made(
        {},
        {
            "privileged": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
            "seLinuxOptions": {"level": "s0"},
        },
    )
    assert (found["privileged"], found["readonly_rootfs"], found["no_new_privs"]) == (True, True, True)
    assert found["capabilities"] == {"add_capabilities": ["NET_ADMIN"], "drop_capabilities": ["ALL"]}
    assert found["selinux_options"] == {"user": "", "role": "", "type": "", "level": "s0"}


@pytest.mark.parametrize(("value", "expected"), [(None, False), (True, False), (False, True)])
def test_no_new_privs_only_when_refused(value: bool | None, expected: bool) -> None:
    assert made({}, {"allowPrivilegeEscalation": value})["no_new_privs"] is expected


def test_proc_mount() -> None:
    assert "/proc/kcore" in made()["masked_paths"]
    assert "/proc/sys" in made()["readonly_paths"]
    unmasked = made({}, {"procMount": "Unmasked"})
    assert (unmasked["masked_paths"], unmasked["readonly_paths"]) == ([], [])


def test_groups_and_policy() -> None:
    found = made({"fsGroup": 100, "supplementalGroups": [1, 2], "supplementalGroupsPolicy": "Strict"})
    assert (found["supplemental_groups"], found["supplemental_groups_policy"]) == ([100, 1, 2], "Strict")
    with pytest.raises(Invalid, match="supplementalGroupsPolicy"):
        made({"supplementalGroupsPolicy": "Some"})


@pytest.mark.parametrize(
    ("spec", "target", "expected"),
    [
        pytest.param({}, "", {"ipc": "POD", "network": "POD", "pid": "CONTAINER"}, id="own"),
        pytest.param(
            {"hostNetwork": True, "hostPID": True, "hostIPC": True},
            "c1",
            {"ipc": "NODE", "network": "NODE", "pid": "NODE"},
            id="the node's",
        ),
        pytest.param(
            {"shareProcessNamespace": True}, "c1", {"ipc": "POD", "network": "POD", "pid": "POD"}, id="shared"
        ),
        pytest.param({}, "c1", {"ipc": "POD", "network": "POD", "pid": "TARGET", "target_id": "c1"}, id="target"),
    ],
)
def test_namespaces(spec: Json, target: str, expected: Json) -> None:
    assert namespaces(pod(**spec), {}, target) == expected
