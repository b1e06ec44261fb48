"""Static pods from their manifests to their mirror pods, over the whole pod pipeline in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent.common.model import labels
from agent.common.model.pods import ProbeState
from nodelib.kube.client import ApiError
from tests.builders.metrics import series
from tests.fakes.clock import settle
from tests.fakes.pod_world import IMAGE
from tests.fakes.static_world import StaticWorld


def manifest(name: str = "web", container: str = "main", **spec: str) -> str:
    more = "".join(f"\n  {key}: {value}" for key, value in spec.items())
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: shop}}
spec:{more}
  containers: [{{name: {container}, image: "{IMAGE}", imagePullPolicy: IfNotPresent}}]
"""


@pytest.fixture
async def world() -> AsyncIterator[StaticWorld]:
    made = StaticWorld()
    await made.start_agent()
    yield made
    await made.kill_agent()


def running(world: StaticWorld) -> list[str]:
    return sorted(world.cri.running())


async def test_a_manifest_becomes_a_pod_and_a_mirror_pod(world: StaticWorld) -> None:
    await world.write("web.yaml", manifest())
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")
    mirror = world.mirror_of("web-n1")
    assert mirror is not None
    notes = mirror["metadata"]["annotations"]
    assert notes[labels.CONFIG_MIRROR] == notes[labels.CONFIG_HASH] == world.registry.pods()[0].uid
    assert mirror["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
    assert mirror["metadata"]["uid"] != notes[labels.CONFIG_HASH]
    assert "observedGeneration" not in mirror["status"]
    assert world.mirrors.translate(mirror["metadata"]["uid"]) == notes[labels.CONFIG_HASH]


async def test_without_an_api_server_it_still_runs(world: StaticWorld) -> None:
    world.node_uid = ""  # the Node could not be registered
    await world.write("web.yaml", manifest())
    await world.until(lambda: running(world) == ["main"])
    assert not world.api.pods
    world.node_uid = "node-uid"
    world.mirrors.poke()
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")


async def test_a_changed_manifest_ends_the_old_pod_before_the_new_one_starts(world: StaticWorld) -> None:
    await world.write("web.yaml", manifest(container="one"))
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")
    before = world.mirror_of("web-n1")
    await world.write("web.yaml", manifest(container="two"))
    await world.until(lambda: running(world) == ["two"])
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")
    after = world.mirror_of("web-n1")
    assert before is not None and after is not None
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["containers"][0]["name"] == "two"
    order = [call for call in world.cri.calls if call[0] in ("remove_sandbox", "run_sandbox")]
    assert [name for name, _ in order] == ["run_sandbox", "remove_sandbox", "run_sandbox"]


async def test_while_the_old_pod_uses_its_grace_its_mirror_shows_that(world: StaticWorld) -> None:
    world.cri.ignores_term.add("one")
    await world.write("web.yaml", manifest(container="one"))
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")
    before = world.mirror_of("web-n1")
    await world.write("web.yaml", manifest(container="two"))
    await world.clock.advance(25)
    during = world.mirror_of("web-n1")
    assert before is not None and during is not None
    assert during["metadata"]["uid"] == before["metadata"]["uid"]
    assert world.mirror_phase("web-n1") == "Running"
    await world.until(lambda: running(world) == ["two"] and world.mirror_phase("web-n1") == "Running")


async def test_a_removed_manifest_takes_pod_and_mirror_with_it(world: StaticWorld) -> None:
    await world.write("web.yaml", manifest())
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")
    await world.remove("web.yaml")
    await world.until(lambda: not world.api.pods and not world.registry.pods())
    assert not running(world)
    assert not world.files.logs


async def test_a_file_deleted_and_written_again_restarts_the_pod_with_its_count(world: StaticWorld) -> None:
    await world.write("web.yaml", manifest())
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")
    world.changes.notify("web.yaml")  # deleted and there again before anybody read it

    def restarted() -> bool:
        mirror = world.mirror_of("web-n1")
        shown = (mirror or {}).get("status", {}).get("containerStatuses") or [{}]
        return "running" in shown[0].get("state", {}) and shown[0]["restartCount"] == 1

    await world.until(restarted)
    assert world.cri.done("start_container") == ["main/0", "main/1"]
    assert series(world.metrics, "kubelet_restarted_pods_total") == {("true",): 1, ("",): 0}


@pytest.mark.parametrize("force", [True, False], ids=["by force", "gracefully"])
async def test_a_deleted_mirror_comes_back_and_the_pod_runs_on(world: StaticWorld, force: bool) -> None:
    await world.write("web.yaml", manifest())
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")
    mirror = world.mirror_of("web-n1")
    assert mirror is not None
    uid = mirror["metadata"]["uid"]
    world.api.vanish(uid) if force else world.api.ask_deletion(uid, 30)
    await world.until(lambda: uid not in world.api.pods and world.mirror_phase("web-n1") == "Running")
    assert world.cri.done("start_container") == ["main/0"]


async def test_a_bad_manifest_is_reported_once_and_delays_no_other(world: StaticWorld) -> None:
    await world.write("a-bad.yaml", "kind: [")
    await world.write("b-good.yaml", manifest())
    await world.until(lambda: running(world) == ["main"])
    assert [text for bad, text in world.problems if bad and "/manifests/a-bad.yaml" in text and "line 1" in text]
    assert len(world.problems) == 1
    await world.write("a-bad.yaml", manifest("other", "second"))
    await world.until(lambda: running(world) == ["main", "second"])
    assert world.problems[-1][0] is False


async def test_a_half_written_file_ends_nothing(world: StaticWorld) -> None:
    await world.write("web.yaml", manifest())
    await world.until(lambda: running(world) == ["main"])
    await world.write("web.yaml", manifest()[:60])
    await world.clock.advance(60)
    assert running(world) == ["main"]
    await world.write("web.yaml", manifest())
    await settle(100)
    assert world.cri.done("start_container") == ["main/0"]


async def test_of_two_manifests_with_one_uid_the_one_that_runs_stays(world: StaticWorld) -> None:
    """The second pod took the place of the first; without either manifest, both were gone."""
    await world.write("web.yaml", manifest("web").replace("name: web", "name: web, uid: mine"))
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")
    await world.write("a-copy.yaml", manifest("other").replace("name: other", "name: other, uid: mine"))
    await world.clock.advance(5)
    assert [pod.name for pod in world.registry.pods()] == ["web-n1"] and running(world) == ["main"]
    assert "a-copy.yaml: pod shop/other-n1 has the UID of the one in /manifests/web.yaml" in world.problems[-1][1]
    await world.remove("web.yaml")
    await world.until(lambda: world.mirror_phase("other-n1") == "Running")


async def test_of_two_manifests_of_one_pod_the_one_that_runs_stays(world: StaticWorld) -> None:
    await world.write("web.yaml", manifest())
    await world.until(lambda: running(world) == ["main"])
    await world.write("a-copy.yaml", manifest())
    await world.clock.advance(30)
    assert world.cri.done("start_container") == ["main/0"]
    assert "a-copy.yaml: pod shop/web-n1 is also in /manifests/web.yaml" in world.problems[-1][1]


async def test_a_directory_that_goes_takes_its_pods_with_it(world: StaticWorld) -> None:
    await world.write("web.yaml", manifest())
    await world.until(lambda: running(world) == ["main"])
    world.folder.files = None
    world.changes.notify()
    await world.until(lambda: not world.registry.pods())
    assert not running(world)


async def test_a_restarted_agent_finds_its_static_pods_and_changes_no_times(world: StaticWorld) -> None:
    await world.write("web.yaml", manifest())
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")
    before = world.mirror_of("web-n1")
    await world.kill_agent()
    await world.clock.advance(3600)
    await world.start_agent()
    await settle(300)
    after = world.mirror_of("web-n1")
    assert before is not None and after is not None
    assert after["status"] == before["status"]
    assert world.cri.done("start_container") == ["main/0"]


async def test_a_restarted_agent_takes_no_readiness_away_before_it_has_probed(world: StaticWorld) -> None:
    text = manifest().replace(
        "imagePullPolicy: IfNotPresent", "imagePullPolicy: IfNotPresent, readinessProbe: {exec: {command: [x]}}"
    )
    await world.write("web.yaml", text)
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")
    uid, (box,) = world.registry.pods()[0].uid, world.cri.containers
    world.probes.answers[uid] = {box: ProbeState(started=True, ready=True)}
    world.registry.wake(uid)

    def is_ready() -> bool:
        shown = (world.mirror_of("web-n1") or {})["status"]["conditions"]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in shown)

    await world.until(is_ready)
    await world.kill_agent()
    world.probes.answers.clear()
    sent, shown, node = len(world.api.statuses), dict(world.api.pods), world.node_uid
    world.api.pods.clear()
    world.node_uid = ""  # the API server has not answered yet
    await world.start_agent()
    await settle(300)
    world.api.pods.update(shown)
    world.node_uid = node
    for raw in shown.values():
        assert world.api.inbox is not None
        world.api.inbox("ADDED", raw, None)
    await settle(300)
    assert is_ready()
    assert len(world.api.statuses) == sent


async def test_a_manifest_changed_while_no_agent_ran_ends_the_old_pod_first(world: StaticWorld) -> None:
    await world.write("web.yaml", manifest(container="one"))
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")
    await world.kill_agent()
    assert world.folder.files is not None
    world.folder.files["web.yaml"] = manifest(container="two").encode()
    await world.start_agent()
    await world.until(lambda: running(world) == ["two"])
    order = [name for name, _ in world.cri.calls if name in ("remove_sandbox", "run_sandbox")]
    assert order == ["run_sandbox", "remove_sandbox", "run_sandbox"]


async def test_a_mirror_without_a_static_pod_is_deleted_once_the_manifests_are_read(world: StaticWorld) -> None:
    await world.write("web.yaml", manifest())
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")
    await world.kill_agent()
    world.folder.files = {}
    await world.start_agent()
    await world.until(lambda: not world.api.pods and not running(world))
    assert world.mirror_of("web-n1") is None and world.cri.done("start_container") == ["main/0"]


async def test_a_refused_mirror_is_an_event_of_the_pod(world: StaticWorld) -> None:
    world.mirror_api.refusals = [ApiError(403, "Forbidden", "no PriorityClass with name x was found")] * 2
    await world.write("web.yaml", manifest())
    await world.until(lambda: world.mirror_phase("web-n1") == "Running")
    assert world.events.reasons().count("FailedCreateMirrorPod") == 1
    assert running(world) == ["main"]
