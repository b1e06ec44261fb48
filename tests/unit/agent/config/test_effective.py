"""The configuration as the log shows it."""

from __future__ import annotations

from pathlib import Path

import yaml

from agent.config.effective import effective_text
from agent.config.parse import parse


def test_the_merged_configuration_is_shown_without_credentials(tmp_path: Path) -> None:
    (tmp_path / "10-kubelet.conf").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\neventBurst: 101\n"
        "staticPodURL: http://127.0.0.1/pods\nstaticPodURLHeader: {Authorization: [secret-a], Cookie: [secret-b]}\n"
    )
    found = parse([f"--config-dir={tmp_path}"], hostname="n").effective
    text = effective_text(found)
    assert "kind: KubeletConfiguration\n" in text and "eventBurst: 101\n" in text
    assert "secret" not in text and "&id" not in text
    headers = {"Authorization": ["<masked>"], "Cookie": ["<masked>"]}
    assert yaml.safe_load(text) == {**found, "staticPodURLHeader": headers}
