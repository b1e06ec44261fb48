"""`join` refuses what it cannot trust, and names with one error what an admin's kubeconfig may not do."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from controlplane.host.model import KnownCluster, Request
from controlplane.host.work.join import join, read_cluster, remove_bootstrap
from controlplane.host.work.join_programs import agent_program
from controlplane.host.work.join_waits import until_certified
from nodelib.clock import SystemClock
from nodelib.errors import Invalid, Permanent
from nodelib.kube.access import ClusterAccess, save_kubeconfig
from nodelib.kube.client import ApiUnreachable


class Unseen:
    """Progress that nobody looks at."""

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        yield lambda detail: None


class Hasty(SystemClock):
    """Nobody waits: time goes on by what was slept."""

    def __init__(self) -> None:
        self._slept = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._slept

    async def sleep(self, seconds: float) -> None:
        self._slept += max(seconds, 1.0)
        await asyncio.sleep(0)


async def test_nobody_waits_for_a_minute_for_a_server_that_is_not_there(tmp_path: Path) -> None:
    config, clock = str(tmp_path / "kubeconfig"), Hasty()
    save_kubeconfig(config, ClusterAccess("http://127.0.0.1:1", token="x"))
    began = clock.monotonic()
    with pytest.raises(ExceptionGroup) as refused:
        await join(Request(kubeconfig=config, node="n1"), Unseen(), clock)
    assert refused.group_contains(ApiUnreachable) and clock.monotonic() - began < 30


async def test_an_admin_s_token_is_not_sent_in_the_clear_either(tmp_path: Path) -> None:
    """A URL that is given beside a kubeconfig counts instead of the one in it."""
    config = str(tmp_path / "kubeconfig")
    save_kubeconfig(config, ClusterAccess("https://127.0.0.1:1", token="x"))
    with pytest.raises(Invalid, match="no https URL"):
        await join(Request(kubeconfig=config, server="http://127.0.0.1:1", node="n1"), Unseen(), Hasty())


async def test_rights_that_an_admin_s_kubeconfig_lacks_are_named(tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "reason": "Forbidden", "message": "may not"}, status=403)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    config = str(tmp_path / "kubeconfig")
    save_kubeconfig(config, ClusterAccess(f"http://127.0.0.1:{runner.addresses[0][1]}", token="x"))
    try:
        with pytest.raises(Permanent, match="may not") as refused:
            await join(Request(kubeconfig=config, node="n1"), Unseen(), Hasty())
    finally:
        await runner.cleanup()
    assert refused.value.obj == config and "Only an admin has these rights" in refused.value.action


@pytest.mark.parametrize(
    ("endpoint", "refused"),
    [
        pytest.param("no-such-name.invalid:6443", True, id="unknown"),
        pytest.param("localhost:6443", False, id="known"),
        pytest.param("[fd00::1]:6443", False, id="address"),
        pytest.param(7, False, id="nonsense"),
    ],
)
async def test_a_name_of_the_api_server_that_the_machine_does_not_know_is_named(
    tmp_path: Path, endpoint: object, refused: bool
) -> None:
    """kind's kube-proxy asks kind-control-plane:6443, and only the containers beside it know that name."""
    configuration = json.dumps({"controlPlaneEndpoint": endpoint})

    async def answer(request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        meta = {"namespace": "kube-system", "name": name, "uid": name, "resourceVersion": "1"}
        data = {"ClusterConfiguration": configuration}
        return web.json_response({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    known = KnownCluster(ClusterAccess(f"http://127.0.0.1:{runner.addresses[0][1]}", token="x"))
    try:
        if not refused:
            await read_cluster(Request(node="n1"), known)
            return
        with pytest.raises(Permanent, match=r"no-such-name\.invalid") as raised:
            await read_cluster(Request(node="n1"), known)
        assert "/etc/hosts" in raised.value.action and "127.0.0.1 no-such-name.invalid" in raised.value.action
        # Nothing of the cluster's asks it.
        await read_cluster(Request(node="n1", network="nodewright", proxy="nodewright"), known)
    finally:
        await runner.cleanup()


async def test_a_runtime_that_does_not_answer_is_named_before_anything_is_done(tmp_path: Path) -> None:
    request = Request("https://127.0.0.1:1", "abcdef.0123456789abcdef", ("sha256:00",), runtime=f"{tmp_path}/crio.sock")
    with pytest.raises(Permanent, match="no container runtime answers") as refused:
        await join(request, Unseen(), Hasty())
    assert refused.value.obj == f"--cri-socket {tmp_path}/crio.sock" and "systemctl start crio" in refused.value.action


async def test_a_cluster_that_nothing_identifies_is_refused() -> None:
    """Whoever knows the token could answer in the cluster's place, and would be this machine's root (as kubeadm)."""
    with pytest.raises(Invalid) as refused:
        await join(Request("https://127.0.0.1:1", "abcdef.0123456789abcdef", node="n1"), Unseen(), Hasty())
    text = str(refused.value)
    assert "--ca-hash" in text and "--ca-file" in text and "--unsafe-skip-ca-verification" in text
    assert "kubeadm token create --print-join-command" in text
    assert "openssl x509 -pubkey" in text


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(Request(pins=("sha256:" + 64 * "0",)), id="hash"),
        pytest.param(Request(skip_verification=True), id="flag"),
    ],
)
async def test_with_a_pin_or_the_flag_the_cluster_is_asked(given: Request) -> None:
    """It is refused later, for it does not answer here."""
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        whole = replace(given, server="https://127.0.0.1:1", token="abcdef.0123456789abcdef", node="n1")
        await join(whole, Unseen(), Hasty())


async def test_an_admin_s_kubeconfig_that_verifies_nothing_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    cluster = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    document = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "x"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    config.write_text(json.dumps(document))
    with pytest.raises(Invalid, match="insecure-skip-tls-verify"):
        await join(Request(kubeconfig=str(config), node="n1"), Unseen(), Hasty())


def test_the_name_is_given_to_the_agent_only_when_it_is_another() -> None:
    """CIS 4.2.7: without the flag the agent takes the machine's own name."""
    known = KnownCluster(ClusterAccess("https://10.0.0.1:6443"))
    assert not any("hostname" in word for word in agent_program(Request(node="here"), known, "none", "here").argv)
    assert "--hostname-override=there" in agent_program(Request(node="there"), known, "none", "here").argv


def test_the_daemons_find_the_packages_of_the_debian_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in a folder of their own, which is in the PYTHONPATH of `nodewright join`."""
    monkeypatch.setenv("PYTHONPATH", "/usr/lib/nodewright/project:/usr/lib/nodewright/site")
    request = Request(node="here", project="/usr/lib/nodewright/project")
    known = KnownCluster(ClusterAccess("https://10.0.0.1:6443"))
    program = agent_program(request, known, "none", "here")
    assert program.env["PYTHONPATH"] == "/usr/lib/nodewright/project:/usr/lib/nodewright/site"


async def test_a_certificate_of_an_earlier_membership_is_not_taken_for_the_new_one(tmp_path: Path) -> None:
    """The token's kubeconfig may be removed only when the API server accepts the node's own credentials."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers["Authorization"])
        if asked[-1] == "Bearer old":
            save_kubeconfig(config, ClusterAccess(server, token="new"))
            return web.json_response({"kind": "Status", "message": "Unauthorized", "code": 401}, status=401)
        return web.json_response({"kind": "Status", "message": "not found", "code": 404}, status=404)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server, config = f"http://127.0.0.1:{runner.addresses[0][1]}", str(tmp_path / "kubelet.conf")
    save_kubeconfig(config, ClusterAccess(server, token="old"))
    try:
        await until_certified("n1", str(tmp_path), Hasty(), config)
    finally:
        await runner.cleanup()
    assert asked == ["Bearer old", "Bearer new"]


def test_the_token_s_kubeconfig_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap-kubelet.conf"
    path.write_text("secret")
    remove_bootstrap(str(path))
    remove_bootstrap(str(path))
    assert not path.exists()
