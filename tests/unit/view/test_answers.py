"""What is said of a pod again, while nothing of it changes, asks its node and nobody else."""

from __future__ import annotations

from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from tests.fakes.apiserver import FakeApiServer
from tests.unit.view.world import Answers, waiting
from tests.waiting import until
from view.edge.watches import EventFeeds


async def test_the_api_server_is_not_asked_again_without_a_change() -> None:
    pod = waiting("late", "node2")
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    async with FakeApiServer() as api, KubeClient(ClusterAccess(api.url), user_agent="test") as client:
        answers = Answers(client)
        first = await answers.why(pod, ())
        asked = len(api.requests)
        assert asked == 2, "its claims and the StorageClasses"
        assert await answers.why(pod, (), only_node=True) == first
        assert len(api.requests) == asked
        await answers.why(pod, ())
        assert len(api.requests) == 2 * asked


async def test_of_the_events_of_a_pod_the_newest_are_kept() -> None:
    """Whoever may create Events may create a hundred thousand."""
    pod, path = waiting("late", "node2"), "/api/v1/namespaces/{}/events"
    path = path.format(pod["metadata"]["namespace"])
    async with FakeApiServer() as api, KubeClient(ClusterAccess(api.url), user_agent="test") as client:
        calls: list[int] = []

        async def create(number: int) -> None:
            about = {"uid": pod["metadata"]["uid"]}
            meta = {"name": f"e{number}", "namespace": pod["metadata"]["namespace"]}
            await api.put(f"{path}/e{number}", {"metadata": meta, "involvedObject": about, "reason": "x"})

        for number in range(500):
            await create(number)
        async with EventFeeds(client).about(pod, lambda: calls.append(1)) as feed:
            await until(lambda: len(calls) >= 500)
            for number in range(500, 1000):
                await create(number)
            await until(lambda: len(calls) >= 1000)
            assert feed.events()[-1]["metadata"]["name"] == "e999" and len(feed.events()) == 200
            assert len(feed.reflector.store) < 400


async def test_of_thousands_of_pods_few_are_remembered() -> None:
    async with FakeApiServer() as api, KubeClient(ClusterAccess(api.url), user_agent="test") as client:
        answers = Answers(client)
        for at in range(40):
            await answers.why(waiting(f"late-{at}", "node2"), ())
        assert len(answers._kept) == 32
