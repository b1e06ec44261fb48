"""How far a pull is: from references and the blobs of a store to the text that people read."""

from __future__ import annotations

import itertools

import pytest

from agent.images.model.pulls import Manifest, PullProgress
from agent.images.plan import pull_progress as plan
from agent.images.plan.pull_progress import Source, Track

MIB = 1 << 20
NOW = 1_767_225_600.0
Manifests = tuple[Manifest, ...]


@pytest.mark.parametrize(
    "reference, expected",
    [
        ("nginx:1", Source("docker.io", "library/nginx")),
        ("nginx@sha256:ab", Source("docker.io", "library/nginx", "sha256:ab")),
        ("grafana/loki:3", Source("docker.io", "grafana/loki")),
        ("docker.io/nginx:1", Source("docker.io", "library/nginx")),
        ("registry.k8s.io/e2e-test-images/agnhost:2.1", Source("registry.k8s.io", "e2e-test-images/agnhost")),
        ("localhost/web:1", Source("localhost", "web")),
        ("localhost:5000/web", Source("localhost", "web")),
        ("10.0.0.1:5000/a/b:v1@sha256:ab", Source("10.0.0.1", "a/b", "sha256:ab")),
        ("[fd00::1]:5000/web:1", Source("fd00::1", "web")),
    ],
)
def test_where_a_reference_comes_from(reference: str, expected: Source) -> None:
    assert plan.source_of(reference) == expected


def manifest(digest: str, age: float, *layers: str) -> Manifest:
    return Manifest(digest, NOW - age, frozenset(layers))


TWO = (manifest("old", 900, "base", "a"), manifest("new", 0, "base", "b"))


@pytest.mark.parametrize(
    "digest, there, writing, expected",
    [
        ("", (), (), ""),
        ("", TWO, (), "new"),
        ("", TWO, ("b",), "new"),
        ("", TWO, ("base",), "new"),
        ("old", TWO, ("b",), "old"),
        ("index", TWO, ("b",), "new"),
        ("", (manifest("old", 900, "a"),), ("a",), "old"),
        ("", (manifest("old", 900, "a"),), (), ""),
        ("", (manifest("one", 0, "a"), manifest("other", 0, "b")), ("a", "b"), ""),
        ("", (manifest("one", 0, "a"), manifest("other", 0, "b")), ("b",), "other"),
    ],
)
def test_which_image_is_pulled(
    digest: str, there: tuple[Manifest, ...], writing: tuple[str, ...], expected: str
) -> None:
    assert plan.chosen(Source("h", "r", digest), NOW - 0.5, there, writing) == expected


def test_bytes_that_have_arrived() -> None:
    sizes = {"config": 10, "a": 100, "b": 1000, "c": 10_000}
    assert plan.done(sizes, {"b": 400, "other": 7, "a": 50}, {"config", "a"}) == 510


def test_rate_and_pause_of_a_pull() -> None:
    track = Track()
    for at, there in ((0, 100), (5, 110), (10, 120), (15, 130), (20, 140), (25, 200)):
        track = plan.tracked(track, at, there * MIB)
    found = plan.progress(track, 1000 * MIB, 25)
    assert (found.done, found.rate, found.still) == (200 * MIB, 90 * MIB / 20, 0)
    for at in (30, 35, 50):
        track = plan.tracked(track, at, 200 * MIB)
    assert plan.progress(track, 1000 * MIB, 52).still == 27
    assert plan.progress(Track(), 1000 * MIB, 52) == PullProgress()


def test_events_come_at_growing_pauses() -> None:
    reported: list[float] = []
    for _ in range(13):
        reported.append(plan.next_report(0, reported))
    assert reported[:5] == [10, 40, 100, 190, 310]
    assert {later - one for one, later in itertools.pairwise(reported[10:])} == {300}


@pytest.mark.parametrize(
    "progress, expected",
    [
        (PullProgress(), ""),
        (PullProgress(turn=3, at_once=5), "3rd in the queue of pulls (5 at once)"),
        (PullProgress(turn=12, at_once=1), "12th in the queue of pulls (1 at once)"),
        (PullProgress(done=312 * MIB, total=980 * MIB), "312 of 980 MiB"),
        (PullProgress(done=312 * MIB, total=980 * MIB, rate=21.0 * MIB), "312 of 980 MiB, 21 MiB/s, about 32 s left"),
        (
            PullProgress(done=512 * MIB, total=3072 * MIB, rate=1.0 * MIB),
            "0.5 of 3.0 GiB, 1.0 MiB/s, about 43 min left",
        ),
        (PullProgress(done=0, total=900, rate=0.0, still=3), "0 of 900 B"),
        (PullProgress(done=5 * MIB, total=50 * MIB, rate=0.2, still=41), "5.0 of 50 MiB, nothing came for 41 s"),
        (PullProgress(done=50 * MIB, total=50 * MIB, rate=0.0, still=41), "50 MiB are here, being unpacked"),
    ],
)
def test_words(progress: PullProgress, expected: str) -> None:
    assert plan.progress_text(progress) == expected
