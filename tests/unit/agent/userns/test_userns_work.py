"""Who has which IDs, over restarts of the agent, failing disks, and files that say anything."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from agent.userns import plan
from agent.userns.edge import GetSubIds, PodMappings
from agent.userns.model import UNIT, IdRange, UserNamespaceSettings
from agent.userns.work import UserNamespaces
from nodelib.errors import Invalid, Permanent, Temporary
from tests.builders.pods import pod
from tests.fakes.userns import FakeMappings, FakeSubordinateIds, user_namespaces


async def first_of(one: UserNamespaces, uid: str) -> int:
    """The host's ID of the pod's root, as a multiple of the unit."""
    found = await one.of(pod(meta={"uid": uid}, hostUsers=False), "", {""})
    assert found["mode"] == "POD" and found["uids"] == found["gids"]
    return int(found["uids"][0]["host_id"]) // UNIT


async def restarted(mappings: FakeMappings, **settings: int) -> UserNamespaces:
    made = user_namespaces(mappings, **settings)
    await made.load()
    return made


async def test_each_pod_keeps_its_own_and_gives_it_back() -> None:
    one = await restarted(FakeMappings())
    assert [await first_of(one, uid) for uid in ("a", "b", "c", "a")] == [1, 2, 3, 1]
    await one.release("b")
    await one.release("never had any")
    assert await first_of(one, "d") == 2


async def test_a_restarted_agent_knows_who_has_what() -> None:
    mappings = FakeMappings()
    one = await restarted(mappings)
    assert [await first_of(one, uid) for uid in ("a", "b")] == [1, 2]
    del mappings.texts["a"]  # with the directory of the pod, which is gone
    after = await restarted(mappings)
    assert [await first_of(after, uid) for uid in ("b", "c", "d")] == [2, 1, 3]


async def test_a_pod_keeps_its_ids_when_the_configuration_changes() -> None:
    mappings = FakeMappings()
    assert await first_of(await restarted(mappings), "a") == 1
    after = await restarted(mappings, ids_per_pod=2 * UNIT)
    assert [await first_of(after, uid) for uid in ("b", "a", "c")] == [2, 1, 4]


async def test_containers_that_start_at_once_ask_once() -> None:
    one = await restarted(FakeMappings())
    assert set(await asyncio.gather(*(first_of(one, "a") for _ in range(5)))) == {1}
    assert sorted(await asyncio.gather(*(first_of(one, f"b{number}") for number in range(5)))) == [2, 3, 4, 5, 6]


async def test_a_full_disk_starts_no_pod_and_wastes_no_ids() -> None:
    mappings = FakeMappings()
    one = await restarted(mappings)
    mappings.full = True
    for _ in range(3):
        with pytest.raises(Temporary, match="no space"):
            await first_of(one, "a")
    mappings.full = False
    assert [await first_of(one, uid) for uid in ("a", "b")] == [1, 2]
    assert plan.range_in(mappings.texts["a"] or "") == IdRange(UNIT, UNIT)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        (None, "cannot be read"),
        (plan.text_of(IdRange(UNIT, UNIT)), "has IDs that pod a has"),
    ],
)
async def test_a_file_that_says_nothing_stops_new_pods_until_its_own_has_gone(text: str | None, problem: str) -> None:
    mappings = FakeMappings()
    mappings.texts = {"a": plan.text_of(IdRange(UNIT, UNIT)), "broken": text}
    one = await restarted(mappings)
    assert await first_of(one, "a") == 1
    for uid in ("broken", "new"):
        with pytest.raises(Permanent, match=problem) as refusal:
            await first_of(one, uid)
        assert "UID broken" in refusal.value.action and "/pods/broken/userns" in refusal.value.message
    assert await one.of(pod(meta={"uid": "plain"}), "", {""}) == {}
    await one.release("broken")
    assert await first_of(one, "new") == 2


async def test_when_all_are_taken() -> None:
    pool = f"0: kubelet {UNIT} {2 * UNIT}\n"
    one = UserNamespaces(UserNamespaceSettings(max_pods=2), FakeMappings(), FakeSubordinateIds((pool, pool)))
    assert [await first_of(one, uid) for uid in ("a", "b")] == [1, 2]
    with pytest.raises(Temporary, match="all IDs are taken: 2 pods"):
        await first_of(one, "c")
    await one.release("a")
    assert await first_of(one, "c") == 1


async def test_where_the_ids_come_from_is_asked_until_it_is_known() -> None:
    ids = FakeSubordinateIds(("0: kubelet 65536 1\n",) * 2)
    one = UserNamespaces(UserNamespaceSettings(), FakeMappings(), ids)
    ids.down = True
    with pytest.raises(Temporary, match="no answer"):
        await first_of(one, "a")
    ids.down = False
    with pytest.raises(Invalid, match="multiples"):
        await first_of(one, "a")
    ids.printed = (f"0: kubelet {5 * UNIT} {200 * UNIT}\n",) * 2
    assert [await first_of(one, uid) for uid in ("a", "b")] == [5, 6]
    assert ids.asked == 3
    await one.of(pod(), "", {""})
    assert ids.asked == 3, "nobody asks for a pod with the node's users"


async def test_files_on_a_disk(tmp_path: Path) -> None:
    found = PodMappings(str(tmp_path))
    assert await found.read() == {}
    await found.write("u1", "text")
    path = Path(found.path("u1"))
    assert path == tmp_path / "pods/u1/userns"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for name in ("long", "link", "folder", "without"):
        (tmp_path / "pods" / name).mkdir()
    (tmp_path / "pods/long/userns").write_text("x" * 5000)
    (tmp_path / "pods/link/userns").symlink_to("/etc/passwd")
    (tmp_path / "pods/folder/userns").mkdir()
    (tmp_path / "pods/elsewhere").symlink_to(tmp_path / "pods/u1")
    assert await found.read() == {"u1": "text", "long": None, "link": None, "folder": None}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "getsubids"


async def test_getsubids_is_asked_for_a_user_that_exists(programs: Path) -> None:
    programs.write_text('#!/bin/sh\n[ "$1" = -g ] && echo "0: $2 1 groups" || echo "0: $1 1 users"\n')
    programs.chmod(0o755)
    assert await GetSubIds().of("root") == ("0: root 1 users\n", "0: root 1 groups\n")
    assert await GetSubIds().of("nobody-has-this-name") is None


@pytest.mark.parametrize("script", ["echo 'Error fetching ranges' >&2; exit 1", "yes", "kill -9 $$"])
async def test_a_getsubids_that_fails_does_not_count_as_none(programs: Path, script: str) -> None:
    programs.write_text(f"#!/bin/sh\n{script}\n")
    programs.chmod(0o755)
    with pytest.raises(Temporary, match="does not say which IDs") as refusal:
        await GetSubIds().of("root")
    assert "getsubids root" in refusal.value.action
