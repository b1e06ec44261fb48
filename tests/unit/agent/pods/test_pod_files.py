"""Log directories, log links and termination messages of pods on a real disk."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.common.model.labels import POD_NAME, POD_NAMESPACE, TERMINATION_PATH, TERMINATION_POLICY
from agent.common.model.pods import ContainerState, RunState
from agent.pods.edge import pod_files
from agent.pods.edge.pod_files import MOST_NAMES, PodFiles
from tests.builders.pods import pod
from tests.fakes.shared_threads import SharedThreads
from tests.waiting import until


async def test_logs_of_a_pod_that_exists_only_on_disk_are_removed(tmp_path: Path) -> None:
    logs, links = tmp_path / "pods", tmp_path / "containers"
    links.mkdir()
    for folder in ("shop_web-0_u1", "shop_web-0_u2", "lost+found"):
        (logs / folder / "main").mkdir(parents=True)
    for uid, box in (("u1", "aa"), ("u2", "bb")):
        target = logs / f"shop_web-0_{uid}" / "main/0.log"
        target.touch()
        (links / f"web-0_shop_main-{box}.log").symlink_to(target)
    files = PodFiles(str(logs), str(links))
    assert await files.logged_pods() == {"u1", "u2"}
    await files.remove_left_logs("u1")
    await files.remove_left_logs("no-such")
    assert sorted(path.name for path in logs.iterdir()) == ["lost+found", "shop_web-0_u2"]
    assert [path.name for path in links.iterdir()] == ["web-0_shop_main-bb.log"]


async def test_logs_are_removed_in_no_thread_that_others_need(tmp_path: Path) -> None:
    """A pod that may write to /var/log has as many files there as the disk has inodes: with six such pods that ended,
    no thread was left for anything else, for 4 s with 100,000 files in each."""
    threads = SharedThreads()
    files = PodFiles(str(tmp_path / "pods"), str(tmp_path / "containers"))
    web = pod(meta={"uid": "u1"})
    for uid in ("u1", "u2"):
        (tmp_path / f"pods/{web.namespace}_{web.name}_{uid}").mkdir(parents=True)
    assert await files.logged_pods() == {"u1", "u2"}
    await files.remove_container_logs(ended(tmp_path / "pods/none/0.log"))
    await files.remove_pod_logs(web)
    await files.remove_left_logs("u2")
    assert not list((tmp_path / "pods").iterdir()) and threads.given == 0


def ended(log: Path, exit_code: int = 1, reason: str = "Error", policy: str = "", message: Path | None = None) -> Any:
    """An ended container that wrote `log`, with its termination message at /dev/termination-log in `message`."""
    mounts = ({"container_path": "/dev/termination-log", "host_path": str(message)},) if message else ()
    notes = {TERMINATION_PATH: "/dev/termination-log", TERMINATION_POLICY: policy}
    made = ContainerState("aa", "s", "u1", "main", 0, RunState.EXITED, 1, exit_code=exit_code, reason=reason)
    return replace(made, annotations=notes, mounts=mounts, log_path=str(log))


async def test_the_termination_message_is_the_end_of_its_file(tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text("x" * 5000 + "end")
    found = await PodFiles().termination_message(ended(tmp_path / "no.log", message=message))
    assert len(found) == 4096 and found.endswith("xend")


async def test_a_message_that_cannot_be_read_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may mount a volume at the path of its message. With six such containers that had ended, on a server
    that was gone, no thread was left for cgroups, statuses of the node, evictions; their pods were never shown."""
    threads, there = SharedThreads(), threading.Event()
    monkeypatch.setattr(pod_files, "_tail", lambda path, limit: there.wait(30) and b"")
    monkeypatch.setattr(pod_files, "_MESSAGE_LIMIT", 0.1)
    reads = (PodFiles().termination_message(ended(tmp_path / "no.log", message=tmp_path)) for _ in range(6))
    found = await asyncio.wait_for(asyncio.gather(*reads), 20)
    there.set()
    assert set(found) == {"Error on reading termination log /dev/termination-log: no answer in 0.1 s"}
    assert threads.given == 0


async def test_messages_that_cannot_be_read_leave_few_threads_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each restart of such a container left one for as long as its server did not answer: a hundred containers that
    crash leave 1,200 in an hour."""
    there, began = threading.Event(), list[str]()

    def hang(path: str, limit: int) -> bytes:
        began.append(path)
        there.wait(30)
        return b"done"

    monkeypatch.setattr(pod_files, "_tail", hang)
    monkeypatch.setattr(pod_files, "_MESSAGE_LIMIT", 0.1)
    reader, one = PodFiles(), ended(tmp_path / "no.log", message=tmp_path)

    async def all_end(*pods: str) -> set[str]:
        reads = (reader.termination_message(replace(one, uid=pod)) for pod in pods)
        before, found = len(began), await asyncio.gather(*reads)
        asked = sum("others go on" not in text for text in found)
        await until(lambda: len(began) == before + asked)
        return {text.removeprefix("Error on reading termination log ") for text in found}

    late = "/dev/termination-log: no answer in 0.1 s"
    assert await all_end(*["u1"] * 30) == {late}, "what ends together is read together"
    assert await all_end(*["u1"] * 30) == {"/dev/termination-log: reads of 30 others go on"}
    assert await all_end("u2") == {late}, "and of others"
    await all_end(*map(str, range(40)))
    assert await all_end("u3") == {"/dev/termination-log: reads of 71 others go on"} and len(began) == 71
    there.set()
    await until(lambda: not reader.reading)
    assert await all_end("u1") == {"done"}, "once they have ended, messages are read again"


async def test_a_link_in_place_of_the_message_file_is_not_followed(tmp_path: Path) -> None:
    secret, message = tmp_path / "secret", tmp_path / "message"
    secret.write_text("root only")
    message.symlink_to(secret)
    found = await PodFiles().termination_message(ended(tmp_path / "no.log", message=message))
    assert found.startswith("Error on reading termination log") and "root only" not in found


async def test_a_device_in_place_of_the_message_file_is_not_opened(tmp_path: Path) -> None:
    # A pod makes a device file in its volume and names it by a subPath. No cgroup keeps the agent from the device.
    found = await PodFiles().termination_message(ended(tmp_path / "no.log", message=Path("/dev/zero")))
    assert found == "Error on reading termination log /dev/zero: [Errno 22] is not a regular file"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"policy": "FallbackToLogsOnError"}, "one\nhalf a line\n", id="failed"),
        pytest.param({"policy": "FallbackToLogsOnError", "exit_code": 0}, "", id="succeeded"),
        pytest.param({"policy": "FallbackToLogsOnError", "reason": "ContainerCannotRun"}, "", id="never-ran"),
        pytest.param({"policy": "File"}, "", id="policy-file"),
    ],
)
async def test_the_end_of_the_log_is_the_message_only_of_a_failure(
    tmp_path: Path, fields: dict[str, Any], expected: str
) -> None:
    log, at = tmp_path / "0.log", "2026-01-01T00:00:00.0Z"
    log.write_text(f"{at} stdout F one\n{at} stderr P half \n{at} stderr F a line\n")
    assert await PodFiles().termination_message(ended(log, **fields)) == expected


async def test_a_line_of_a_log_ends_at_its_line_feed(tmp_path: Path) -> None:
    """Progress bars and the like: what stood before the last one was lost."""
    log = tmp_path / "0.log"
    log.write_bytes("2026-01-01T00:00:00.0Z stdout F 10 %\r20 %\x0bdone\u2028\n".encode())
    assert (
        await PodFiles().termination_message(ended(log, policy="FallbackToLogsOnError")) == "10 %\r20 %\x0bdone\u2028\n"
    )


async def test_a_started_containers_log_is_linked_and_removed_with_its_rotations(tmp_path: Path) -> None:
    logs, links = tmp_path / "pods", tmp_path / "containers"
    folder = logs / "shop_web_u1" / "main"
    folder.mkdir(parents=True)
    for name in ("0.log", "0.log.20260101-000000.gz", "1.log"):
        (folder / name).touch()
    files, web = PodFiles(str(logs), str(links)), pod(meta={"name": "web", "namespace": "shop", "uid": "u1"})
    await files.container_started(web, "main", "aa", str(folder / "0.log"))
    await files.container_started(web, "main", "aa", str(folder / "0.log"))
    (link,) = links.iterdir()
    assert link.name == "web_shop_main-aa.log" and link.readlink() == folder / "0.log"
    one = replace(ended(folder / "0.log"), labels={POD_NAME: "web", POD_NAMESPACE: "shop"})
    await files.remove_container_logs(one)
    assert [path.name for path in folder.iterdir()] == ["1.log"] and list(links.iterdir()) == []


async def test_a_containers_termination_message_goes_with_it_and_no_other_file(tmp_path: Path) -> None:
    """A container that restarts for ever would else leave files of any size."""
    folder = tmp_path / "kubelet" / "pods" / "u1" / "containers" / "main"
    folder.mkdir(parents=True)
    (tmp_path / "hosts").touch()
    (folder.parent / "escaped").touch()
    for name in ("00000001", "00000002"):
        (folder / name).write_text("x" * 100_000)
    files = PodFiles(str(tmp_path / "logs"), str(tmp_path / "links"), str(tmp_path / "kubelet"))
    places = [folder / "00000001", tmp_path / "hosts", f"{folder}/../escaped"]
    mounts = tuple({"container_path": "/x", "host_path": str(path)} for path in places)
    await files.remove_container_logs(replace(ended(tmp_path / "no.log"), mounts=mounts))
    assert [path.name for path in folder.iterdir()] == ["00000002"]
    assert (tmp_path / "hosts").exists() and (folder.parent / "escaped").exists()


@pytest.mark.parametrize("name", ["../../victim", "..", "a/../../../victim"])
async def test_names_of_the_runtime_that_are_no_names_lead_nowhere(tmp_path: Path, name: str) -> None:
    logs, links = tmp_path / "logs", tmp_path / "links"
    for place in (logs, links, tmp_path / "victim"):
        place.mkdir()
    (tmp_path / "victim" / "kept").touch()
    (tmp_path / "victim_main-aa.log").touch()
    files = PodFiles(str(logs), str(links), str(tmp_path / "kubelet"))
    one = replace(
        ended(Path(f"{logs}/../victim/kept")),
        labels={POD_NAME: name, POD_NAMESPACE: name},
        log_path=f"{logs}/../victim/kept",
    )
    await files.remove_container_logs(one)
    await files.remove_pod_logs(pod(meta={"name": "x", "namespace": f"{name}", "uid": "/../../victim"}))
    assert (tmp_path / "victim" / "kept").exists() and (tmp_path / "victim_main-aa.log").exists()


def _sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


def _pipe_with_a_writer(path: Path) -> None:
    os.mkfifo(path)
    os.open(path, os.O_RDWR | os.O_NONBLOCK)  # open until the test ends


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(_sparse, id="a sparse tebibyte"),
        pytest.param(os.mkfifo, id="a pipe"),
        pytest.param(_pipe_with_a_writer, id="a pipe with a writer"),
        pytest.param(Path.mkdir, id="a folder"),
        pytest.param(lambda path: path.symlink_to("/dev/zero"), id="a link to a device"),
        pytest.param(lambda path: path.symlink_to(path), id="a link to itself"),
    ],
)
async def test_whatever_is_in_place_of_the_message_file_is_read_soon(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    message = tmp_path / "message"
    make(message)
    found = await asyncio.wait_for(PodFiles().termination_message(ended(tmp_path / "no.log", message=message)), 5)
    assert len(found) <= 4096


async def test_a_log_that_is_cut_at_nested_json_is_no_crash(tmp_path: Path) -> None:
    """The container chooses where the end of its log begins; an error here would end every audit of the node."""
    log, nested = tmp_path / "0.log", '{"a":'
    log.write_text("2026-01-01T00:00:00.0Z stdout F x" + nested + "[" * (2048 + 80 * 64 - len(nested)))
    found = await PodFiles().termination_message(ended(log, policy="FallbackToLogsOnError"))
    assert len(found.encode()) <= 2048


async def test_of_a_folder_of_very_many_names_some_are_looked_at(tmp_path: Path) -> None:
    for number in range(MOST_NAMES + 100):
        (tmp_path / f"a_b_{number}").touch()
    assert len(await PodFiles(str(tmp_path)).logged_pods()) == MOST_NAMES
