"""The configuration that is shown is one that gives the same proxy again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer

from proxy.app import main
from proxy.config.effective import document, duration_text
from proxy.config.settings import load_settings
from proxy.edge.metrics import Metrics
from proxy.http_handlers import metrics_routes

FLAGS = [
    ["--hostname-override=n1"],
    ["--hostname-override=n1", "--proxy-mode=nftables", "--cluster-cidr=10.0.0.0/8,fd00::/48", "--masquerade-all"],
    ["--hostname-override=n1", "--nodeport-addresses=primary,10.0.0.0/8", "--conntrack-udp-timeout=90s", "-v=4"],
    ["--hostname-override=n1", "--kube-api-qps=2.5", "--kube-api-burst=3", "--vmodule=sync=4,a*=5"],
    ["--hostname-override=n1", "--logging-format=json"],
    ["--hostname-override=n1", "--detect-local-mode=BridgeInterface", "--pod-bridge-interface=nw0"],
]


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: " ".join(flags[1:]) or "defaults")
def test_written_and_read_again_it_is_the_same(flags: list[str], tmp_path: Path) -> None:
    path = tmp_path / "proxy.yaml"
    assert main([*flags, f"--write-config-to={path}"]) == 0
    again = load_settings([f"--config={path}"])
    assert again == load_settings(flags)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.02, "20ms"), (30, "30s"), (90, "1m30s"), (3600, "1h0m0s"), (86400, "24h0m0s")]
)
def test_durations_as_go_prints_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


async def test_configz_names_the_group() -> None:
    from aiohttp import web

    settings = load_settings(["--hostname-override=n1"])
    app = web.Application()
    for path, handler in metrics_routes(settings, Metrics()).items():
        app.router.add_get(path, handler)
    async with TestClient(TestServer(app)) as client:
        found = json.loads(await (await client.get("/configz")).text())
        assert found == {"kubeproxy.config.k8s.io": document(settings)}
        shown = await (await client.get("/metrics")).text()
        assert "kubeproxy_sync_proxy_rules_duration_seconds" in shown and "process_resident_memory_bytes" in shown
    assert yaml.safe_load(yaml.safe_dump(found)) == found


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hostname-override=n1", f"--write-config-to={tmp_path / 'no' / 'such'}"]) == 1
