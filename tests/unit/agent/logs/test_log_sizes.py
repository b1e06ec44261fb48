"""What logs take on disk, for a scrape, whatever a pod puts into the folder of its log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from agent.logs.edge.log_sizes import LogSizes
from tests.builders.pods import container, pod

NAME = "kubelet_container_log_filesystem_used_bytes"
WEB = pod(container(), meta={"uid": "u1", "namespace": "shop", "name": "web"})


def measured(folder: Path, *names: str) -> dict[tuple[str, ...], float]:
    registry = CollectorRegistry()
    registry.register(LogSizes(str(folder), lambda: ((WEB, name) for name in names)))
    (family,) = registry.collect()
    assert family.name == NAME
    return {tuple(one.labels.values()): one.value for one in family.samples}


def test_a_containers_log_has_the_size_that_it_takes(tmp_path: Path) -> None:
    logs = tmp_path / "shop_web_u1" / "main"
    logs.mkdir(parents=True)
    (logs / "0.log").write_bytes(b"x" * 5000)
    (logs / "0.log.20260101-000000").write_bytes(b"x" * 9000)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "large").write_bytes(b"x" * 100_000)
    (logs / "loop").symlink_to(logs)
    (logs / "large").symlink_to(tmp_path / "elsewhere" / "large")
    os.mkfifo(logs / "pipe")
    (tmp_path / "shop_web_u1" / "linked").symlink_to(tmp_path / "elsewhere")
    ((labels, used),) = measured(tmp_path, "main", "main", "linked", "none").items()
    assert labels == ("u1", "shop", "web", "main")
    assert 8192 + 12288 <= used < 40_000


def test_a_link_in_the_place_of_a_pods_folder_is_not_followed(tmp_path: Path) -> None:
    """Who may write there could lead each scrape to the file system of a server that is gone, in one of the few threads
    that the whole agent shares."""
    (tmp_path / "elsewhere" / "main").mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "shop_web_u1").symlink_to(tmp_path / "elsewhere")
    assert measured(tmp_path / "logs", "main") == {}


def test_of_a_folder_full_of_files_some_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.logs.edge.log_sizes._MOST", 10)
    logs = tmp_path / "shop_web_u1" / "main"
    logs.mkdir(parents=True)
    for number in range(100):
        (logs / f"{number}").write_bytes(b"x" * 4096)
    ((_, used),) = measured(tmp_path, "main").items()
    assert 10 * 4096 <= used < 30 * 4096
