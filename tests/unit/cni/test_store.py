"""The records on disk: whole or absent, never doubled, found again."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from ipaddress import ip_address
from pathlib import Path

import pytest

from cni.edge.store import DiskStore
from cni.model import Attachment, AttachmentKey, PortMapping
from cni.spec.errors import CNIError

ONE = ip_address("10.1.0.2")
TWO = ip_address("fd00::2")


def attachment(name: str, *addresses: object) -> Attachment:
    mappings = (PortMapping(80, 8080, "udp", "10.0.0.1"),)
    return Attachment(AttachmentKey(name, "eth0"), addresses or (ONE, TWO), mappings, "ns/pod", 12.5)  # type: ignore[arg-type]


def test_what_is_claimed_is_there_after_a_restart(tmp_path: Path) -> None:
    store = DiskStore(str(tmp_path), "net")
    record = attachment("c1")
    assert store.claim(ONE, record)
    assert store.claim(TWO, record)
    again = DiskStore(str(tmp_path), "net")
    assert again.get(record.key) == record
    assert again.attachments() == [record]
    assert again.last() == {4: ONE, 6: TWO}
    assert (tmp_path / "net" / "10.1.0.2").stat().st_mode & 0o777 == 0o600
    assert again.release(record.key) == record
    assert DiskStore(str(tmp_path), "net").attachments() == []


def test_of_two_writers_one_gets_it_and_the_other_learns(tmp_path: Path) -> None:
    mine, other = DiskStore(str(tmp_path), "net"), DiskStore(str(tmp_path), "net")
    assert mine.claim(ONE, attachment("c1", ONE))
    assert not other.claim(ONE, attachment("c2", ONE))
    assert ONE in other.taken()
    held = other.get(AttachmentKey("c1", "eth0"))
    assert held is not None
    assert held.addresses == (ONE,)


def test_release_finds_what_another_process_wrote(tmp_path: Path) -> None:
    mine, other = DiskStore(str(tmp_path), "net"), DiskStore(str(tmp_path), "net")
    other.claim(ONE, attachment("c1", ONE))
    assert mine.release(AttachmentKey("c1", "eth0")) is not None
    assert not (tmp_path / "net" / "10.1.0.2").exists()


def test_release_never_removes_a_record_of_somebody_else(tmp_path: Path) -> None:
    mine, other = DiskStore(str(tmp_path), "net"), DiskStore(str(tmp_path), "net")
    mine.claim(ONE, attachment("c1", ONE))
    other.release(AttachmentKey("c1", "eth0"))
    other.claim(ONE, attachment("c2", ONE))
    mine.release(AttachmentKey("c1", "eth0"))
    assert DiskStore(str(tmp_path), "net").get(AttachmentKey("c2", "eth0")) is not None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"containerID": 1}', b"\xff"], ids=range(5))
def test_a_damaged_record_is_dropped_and_the_rest_read(tmp_path: Path, content: bytes) -> None:
    store = DiskStore(str(tmp_path), "net")
    store.claim(ONE, attachment("c1", ONE))
    (tmp_path / "net" / "10.1.0.9").write_bytes(content)
    (tmp_path / "net" / "README").write_text("not an address")
    again = DiskStore(str(tmp_path), "net")
    assert list(again.taken()) == [ONE]
    assert again.claim(ip_address("10.1.0.9"), attachment("c2", ip_address("10.1.0.9")))


def test_half_of_a_dual_stack_claim_holds_half(tmp_path: Path) -> None:
    store = DiskStore(str(tmp_path), "net")
    store.claim(ONE, attachment("c1"))
    held = DiskStore(str(tmp_path), "net").get(AttachmentKey("c1", "eth0"))
    assert held is not None
    assert held.addresses == (ONE,)


def test_old_drafts_are_swept(tmp_path: Path) -> None:
    DiskStore(str(tmp_path), "net")
    old, young = tmp_path / "net" / ".draft-1-1", tmp_path / "net" / ".draft-2-1"
    old.touch()
    young.touch()
    os.utime(old, (1, 1))
    DiskStore(str(tmp_path), "net")
    assert (old.exists(), young.exists()) == (False, True)


def test_threads_never_get_the_same(tmp_path: Path) -> None:
    store = DiskStore(str(tmp_path), "net")
    pool = [ip_address(f"10.1.0.{n}") for n in range(2, 34)]
    got: list[object] = []

    def work(name: str) -> None:
        for address in pool:
            if store.claim(address, attachment(name, address)):
                got.append(address)

    threads = [threading.Thread(target=work, args=(f"c{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, got)) == sorted(map(str, pool))


def test_killed_at_any_point_leaves_whole_records_only(tmp_path: Path) -> None:
    """A writer that claims and releases for ever, killed 15 times."""
    script = (
        "import sys; from ipaddress import ip_address; from cni.edge.store import DiskStore; from cni.model import *\n"
        "s = DiskStore(sys.argv[1], 'net'); print('ready', flush=True); n = 0\n"
        "while True:\n"
        "    n += 1; key = AttachmentKey(f'c{n % 9}', 'eth0'); a = ip_address(f'10.1.0.{n % 200 + 1}')\n"
        "    s.claim(a, Attachment(key, (a,))); n % 3 or s.release(key)\n"
    )
    for _ in range(15):
        process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        process.wait()
        process.stdout.close()
        for item in (tmp_path / "net").iterdir():
            if not item.name.startswith("."):
                assert json.loads(item.read_bytes())["addresses"] == [item.name]


def test_a_folder_that_cannot_be_written_is_a_coded_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CNIError) as caught:
        DiskStore(str(tmp_path / "file"), "net")
    assert caught.value.code == 5
    assert str(tmp_path) in str(caught.value)


def test_whoever_looks_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's event loop looks, and a disk that is busy with what pods write takes seconds for a link."""
    store = DiskStore(str(tmp_path), "net")
    store.claim(ONE, attachment("c1", ONE))
    begun, goes_on = threading.Event(), threading.Event()
    link = os.link

    def slow(source: Path, target: Path) -> None:
        begun.set()
        assert goes_on.wait(10)
        link(source, target)

    monkeypatch.setattr(os, "link", slow)
    claiming = threading.Thread(target=store.claim, args=(TWO, attachment("c2", TWO)))
    claiming.start()
    assert begun.wait(10)
    seen: list[object] = []
    looking = threading.Thread(target=lambda: seen.extend((store.attachments(), store.taken(), store.last())))
    looking.start()
    looking.join(2)
    waits = looking.is_alive()
    goes_on.set()
    claiming.join(10)
    looking.join(10)
    assert not waits
    assert seen[0] == [attachment("c1", ONE)]
    assert {one.key.container_id for one in store.attachments()} == {"c1", "c2"}


def full_after(chars: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes files, and what is longer than that."""
    write = Path.write_text

    def full(self: Path, text: str) -> int:
        if len(text) < chars:
            self.touch()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))
        return write(self, text)

    monkeypatch.setattr(Path, "write_text", full)


def test_an_address_is_given_though_nothing_says_any_more_which_was_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ADD failed, its address stayed taken until a DEL, and each left a draft until the next start."""
    store = DiskStore(str(tmp_path), "net")
    full_after(50, monkeypatch)
    assert store.claim(ONE, attachment("c1", ONE))
    assert os.listdir(tmp_path / "net") == ["10.1.0.2"]
    assert store.last() == {4: ONE}
