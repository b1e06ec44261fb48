"""Certificates of pods: requested, waited for, shown, renewed, refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.common.model.pod_settings import NodeContext
from agent.common.model.pods import Pod
from agent.volumes.model.sources import MOST_CERTIFICATES_OF_NAMESPACE, CertificateProjection, Credential
from agent.volumes.work.pod_certificates import PodCertificateManager, Reports
from nodelib.errors import Permanent, Temporary
from nodelib.kube.times import format_rfc3339
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import pod
from tests.fakes.certificate_requests import FakeRequests
from tests.fakes.clock import FakeClock, settle
from tests.fakes.signer import refused
from tests.waiting import until

SOURCE = CertificateProjection("tls", 0, "example.com/s", "ECDSAP256")
HOUR = 3600.0


CHAIN = "-----BEGIN CERTIFICATE-----\nY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n"


class World:
    def __init__(self) -> None:
        self.clock, self.requests = FakeClock(), FakeRequests()
        self.notified: list[str] = []
        self.warned: list[tuple[str, str]] = []
        self.facts = NodeContext(uid="node uid")
        self.manager = PodCertificateManager(
            self.requests,
            self.clock,
            "n1",
            lambda: self.facts,
            Reports(self.notified.append, lambda _, reason, message: self.warned.append((reason, message))),
        )

    def ask(self, subject: Pod | None = None, source: CertificateProjection = SOURCE) -> asyncio.Task[Credential]:
        return asyncio.create_task(self.manager.get(subject or pod(), source))

    def issue(self, number: int | None = None, lifetime: float = 2 * HOUR) -> None:
        now = self.clock.now()
        self.requests.answer(
            {
                "conditions": [{"type": "Issued"}],
                "certificateChain": CHAIN,
                "beginRefreshAt": format_rfc3339(now + lifetime / 2),
                "notAfter": format_rfc3339(now + lifetime),
            },
            number,
        )

    async def first(self) -> Credential:
        task = self.ask()
        await settle()
        self.issue()
        return await task

    async def until_overdue(self) -> None:
        """Past the refresh of a certificate of two hours, whatever its jitter."""
        await self.clock.advance(HOUR + 301)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.manager.close()


async def test_a_signer_that_answers_at_once(world: World) -> None:
    found = await world.first()
    assert found == Credential(b"KEY 1\n", CHAIN.encode())
    assert world.requests.made[0]["spec"]["nodeUID"] == "node uid"
    assert world.requests.made[0]["spec"]["serviceAccountUID"] == "uid of shop/default"
    assert world.notified == []
    assert await world.manager.get(pod(), SOURCE) == found
    assert len(world.requests.made) == 1


async def test_one_request_for_all_who_ask(world: World) -> None:
    tasks = [world.ask() for _ in range(5)]
    await settle()
    world.issue()
    assert len(set(map(id, await asyncio.gather(*tasks)))) == 1
    assert len(world.requests.made) == 1


async def test_each_source_of_each_pod_has_its_own(world: World) -> None:
    other = CertificateProjection("tls", 1, "example.com/s", "ED25519")
    tasks = [world.ask(), world.ask(source=other), world.ask(pod(meta={"uid": "u2"}))]
    await settle()
    assert len(world.requests.made) == 3
    assert sorted(world.requests.keys) == ["ECDSAP256", "ECDSAP256", "ED25519"]
    for number in (1, 2, 3):
        world.issue(number)
    assert len({one.key for one in await asyncio.gather(*tasks)}) == 3


async def test_a_signer_that_takes_its_time(world: World) -> None:
    task = world.ask()
    await world.clock.advance(3)
    with pytest.raises(Temporary, match=r"not issued yet: PodCertificateRequest shop/req-1 waits for its signer"):
        await task
    assert world.notified == []
    world.issue()
    await settle()
    assert world.notified == [pod().uid]
    assert (await world.manager.get(pod(), SOURCE)).key == b"KEY 1\n"
    assert len(world.requests.made) == 1


@pytest.mark.parametrize("how", ["Denied", "Failed"])
async def test_a_refusal_is_final(world: World, how: str) -> None:
    task = world.ask()
    await settle()
    world.requests.answer(refused(how, "UnsupportedKeyType", "use ED25519", 0))
    with pytest.raises(
        Permanent, match=f'permanently {how.lower()}: reason="UnsupportedKeyType" message="use ED25519"'
    ):
        await task
    outcome = {"Denied": "was denied", "Failed": "failed"}[how]
    assert world.warned == [
        (how, f'PodCertificateRequest shop/req-1 {outcome}, reason="UnsupportedKeyType", message="use ED25519"')
    ]
    await world.clock.advance(10 * HOUR)
    with pytest.raises(Permanent):
        await world.manager.get(pod(), SOURCE)
    assert len(world.requests.made) == 1
    assert world.manager.states() == {("example.com/s", how.lower()): 1}


async def test_renewal(world: World) -> None:
    await world.first()
    await world.clock.advance(HOUR - 1)
    assert len(world.requests.made) == 1
    await world.clock.advance(302)
    assert len(world.requests.made) == 2
    assert (await world.manager.get(pod(), SOURCE)).key == b"KEY 1\n"
    world.issue()
    await settle()
    assert world.notified == [pod().uid]
    assert (await world.manager.get(pod(), SOURCE)).key == b"KEY 2\n"
    assert world.warned == []


async def test_a_signer_that_does_not_renew(world: World) -> None:
    await world.first()
    await world.until_overdue()
    assert world.manager.states() == {("example.com/s", "fresh"): 1}
    await world.clock.advance(700)
    assert [reason for reason, _ in world.warned] == ["CertificateOverdueForRefresh"]
    assert world.manager.states() == {("example.com/s", "overdue_for_refresh"): 1}
    await world.clock.advance(HOUR)
    assert [reason for reason, _ in world.warned] == ["CertificateOverdueForRefresh", "CertificateExpired"]
    assert world.manager.states() == {("example.com/s", "expired"): 1}
    assert (await world.manager.get(pod(), SOURCE)).key == b"KEY 1\n"


async def test_a_renewal_that_is_refused(world: World) -> None:
    await world.first()
    await world.until_overdue()
    world.requests.answer(refused("Denied", "R", "no more", 0))
    await settle()
    with pytest.raises(Permanent, match="no more"):
        await world.manager.get(pod(), SOURCE)


async def test_a_request_that_somebody_deletes_is_made_again(world: World) -> None:
    task = world.ask()
    await settle()
    world.requests.answer({})
    await settle()
    world.requests.delete()
    await world.clock.advance(1)
    assert len(world.requests.made) == 2
    world.issue()
    assert (await task).key == b"KEY 1\n"


async def test_a_request_that_never_shows_is_made_again(world: World) -> None:
    world.ask().add_done_callback(lambda task: task.exception())
    await world.clock.advance(599)
    assert len(world.requests.made) == 1
    await world.clock.advance(62)
    assert len(world.requests.made) == 2


async def test_an_answer_that_comes_before_the_name(world: World) -> None:
    request = {"metadata": {"namespace": "shop", "name": "req-1"}, "status": refused("Denied", "R", "at once", 0)}
    world.requests.visible["shop", "req-1"] = request
    with pytest.raises(Permanent, match="at once"):
        await world.manager.get(pod(), SOURCE)


async def test_the_server_does_not_know_the_pod_yet(world: World) -> None:
    world.requests.failures = [Temporary("pod not found") for _ in range(4)]
    task = world.ask()
    await world.clock.advance(1)
    world.issue()
    assert (await task).key == b"KEY 1\n"
    assert world.requests.keys == ["ECDSAP256"]


async def test_a_server_that_keeps_refusing_is_named(world: World) -> None:
    world.requests.failures = [Temporary("quota exceeded") for _ in range(100)]
    task = world.ask()
    await world.clock.advance(3)
    with pytest.raises(Temporary, match="not issued yet: quota exceeded"):
        await task
    await world.clock.advance(HOUR)
    assert 20 < len(world.requests.failures) < 60


async def test_no_request_before_the_node_is_known(world: World) -> None:
    world.facts = NodeContext()
    task = world.ask()
    await world.clock.advance(1)
    assert world.requests.made == []
    world.facts = NodeContext(uid="node uid")
    await world.clock.advance(1.5)
    world.issue()
    await task


async def test_a_pod_that_is_gone(world: World) -> None:
    await world.first()
    world.manager.drop_pod(pod().uid)
    await world.clock.advance(10 * HOUR)
    assert len(world.requests.made) == 1
    assert world.manager.states() == {}


async def test_static_pods_have_none(world: World) -> None:
    with pytest.raises(Permanent, match="static pod"):
        await world.manager.get(pod(source="file"), SOURCE)
    assert world.requests.made == []


async def test_keys_do_not_show(world: World) -> None:
    assert "KEY" not in repr(await world.first())


async def test_one_namespace_has_a_bounded_number(world: World) -> None:
    tasks = [
        world.ask(source=CertificateProjection("tls", number, "example.com/s", "RSA4096"))
        for number in range(MOST_CERTIFICATES_OF_NAMESPACE)
    ]
    await settle()
    one_more = world.ask(source=CertificateProjection("tls", 1000, "example.com/s", "RSA4096"))
    other = world.ask(pod(meta={"namespace": "other", "uid": "u9"}))
    await settle()
    assert one_more.done()
    with pytest.raises(Temporary, match="have 500 certificates on this node"):
        await one_more
    assert len(world.requests.keys) == MOST_CERTIFICATES_OF_NAMESPACE + 1
    await cancel_and_wait(*tasks, other)


async def test_a_request_that_is_deleted_again_and_again_costs_one_key(world: World) -> None:
    task = world.ask()
    for number in range(1, 4):
        await until(lambda number=number: len(world.requests.made) == number, clock=world.clock)  # type: ignore[misc]
        world.requests.delete()
    await settle()
    assert world.requests.keys == ["ECDSAP256"]
    await cancel_and_wait(task)
