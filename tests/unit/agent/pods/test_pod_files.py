"""Log directories of pods on a real disk."""

from __future__ import annotations

from pathlib import Path

from agent.pods.edge.pod_files import PodFiles


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
