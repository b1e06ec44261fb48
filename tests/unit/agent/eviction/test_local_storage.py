"""Limits of ephemeral storage, which only an eviction enforces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.common.model.eviction import Eviction
from agent.common.model.pods import Pod
from agent.eviction.model import StorageLimits
from agent.eviction.plan import local_storage
from agent.eviction.plan.local_storage import limits_of
from agent.stats.model import FsUsage, PodStats
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.unit.agent.eviction.usage import MIB, used_by


def limited(amount: str, **spec: Any) -> Json:
    return container(resources={"limits": {"ephemeral-storage": amount}}, **spec)


def violation(made: Pod, usage: PodStats, *, image_fs: bool) -> Eviction | None:
    return local_storage.violation(made, limits_of(made), usage, image_fs=image_fs)


CACHE: Json = {"name": "cache", "emptyDir": {"sizeLimit": "10Mi"}}


@pytest.mark.parametrize(
    ("containers", "spec", "use", "signal", "message"),
    [
        pytest.param(
            [container()],
            {"volumes": [CACHE]},
            {"volume": 11 * MIB},
            "emptydirfs.limit",
            'Usage of EmptyDir volume "cache" exceeds the limit "10Mi". ',
            id="emptyDir",
        ),
        pytest.param(
            [limited("10Mi")],
            {},
            {"layer": 6 * MIB, "volume": 5 * MIB},
            "ephemeralpodfs.limit",
            "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ",
            id="all of the pod together",
        ),
        pytest.param(
            [limited("10Mi"), limited("100Mi", name="other")],
            {},
            {"layer": 6 * MIB, "logs": 5 * MIB},
            "ephemeralcontainerfs.limit",
            'Container main exceeded its local ephemeral storage limit "10Mi". ',
            id="one container",
        ),
    ],
)
def test_over(containers: list[Json], spec: Json, use: dict[str, int], signal: str, message: str) -> None:
    made = pod(*containers, **spec)
    found = violation(made, used_by(made.uid, **use), image_fs=False)
    assert found is not None and limits_of(made)
    if not containers[0].get("resources") or len(containers) > 1:
        assert found.signal == signal
    assert (found.signal, found.message, found.grace, found.disrupted) == (signal, message, 1, False)


UNREAD = FsUsage(1, used=1, unread="a: Input/output error")


def _with_unread(usage: PodStats, part: str) -> PodStats:
    match part:
        case "volume":
            return replace(usage, volumes=(replace(usage.volumes[0], usage=UNREAD),))
        case "logs":
            return replace(usage, containers=(replace(usage.containers[0], logs=UNREAD),))
    return replace(usage, own_files=UNREAD)


@pytest.mark.parametrize(
    ("part", "limit", "signal"),
    [
        ("volume", "cache", "emptydirfs.limit"),
        ("volume", "pod", "ephemeralpodfs.limit"),
        ("own files", "pod", "ephemeralpodfs.limit"),
        ("logs", "pod", "ephemeralpodfs.limit"),
        ("volume", "none", ""),
        ("own files", "cache", ""),
    ],
)
def test_what_cannot_be_measured_is_over_the_limits_that_it_counts_for(part: str, limit: str, signal: str) -> None:
    main = limited("10Mi") if limit == "pod" else container()
    made = pod(main, volumes=[CACHE] if limit == "cache" else [])
    found = violation(made, _with_unread(used_by(made.uid), part), image_fs=False)
    assert (found.signal if found is not None else "") == signal


@pytest.mark.parametrize(
    ("containers", "spec", "use"),
    [
        ([container()], {"volumes": [CACHE]}, {"volume": 10 * MIB}),
        ([container()], {"volumes": [{"name": "cache", "emptyDir": {}}]}, {"volume": 99 * MIB}),
        ([container()], {}, {"layer": 99 * MIB}),
        ([limited("10Mi")], {}, {"layer": 10 * MIB}),
    ],
    ids=["emptyDir at its limit", "emptyDir without one", "no limit", "pod at its limit"],
)
def test_within(containers: list[Json], spec: Json, use: dict[str, int]) -> None:
    made = pod(*containers, **spec)
    assert violation(made, used_by(made.uid, **use), image_fs=False) is None


def test_layers_on_another_disk_do_not_count_against_a_container() -> None:
    made = pod(limited("10Mi"), limited("90Mi", name="other"))
    assert violation(made, used_by(made.uid, layer=20 * MIB), image_fs=True) is None


def test_an_ordinary_init_container_has_no_limit_of_its_own() -> None:
    made = pod(container(), initContainers=[limited("1Mi", name="setup")])
    assert limits_of(made)
    assert violation(made, used_by(made.uid), image_fs=False) is None


FAR = "1e3000000"  # an API server stores it


@pytest.mark.parametrize(
    "made",
    [
        pod(container(), volumes=[{"name": "cache", "emptyDir": {"sizeLimit": FAR}}]),
        pod(container(resources={"limits": {"ephemeral-storage": FAR}, "requests": {"ephemeral-storage": "1"}})),
    ],
    ids=["emptyDir", "container"],
)
def test_a_limit_beyond_all_amounts_is_none(made: Pod) -> None:
    """It ended each round of the node's evictions, for as long as the pod was there."""
    assert limits_of(made) == StorageLimits()
    assert violation(made, used_by(made.uid, layer=99 * MIB, volume=99 * MIB), image_fs=False) is None


def test_other_limits_of_such_a_pod_hold() -> None:
    volumes = [{"name": "far", "emptyDir": {"sizeLimit": FAR}}, CACHE]
    made = pod(
        container(resources={"limits": {"ephemeral-storage": FAR}}), limited("1Mi", name="other"), volumes=volumes
    )
    found = violation(made, used_by(made.uid, volume=11 * MIB), image_fs=False)
    assert found is not None and found.signal == "emptydirfs.limit"
