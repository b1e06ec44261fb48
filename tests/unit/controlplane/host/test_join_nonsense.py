"""`join` and an API server that answers with shapes that no API server has: an error in words, or it does not count."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controlplane.host.edge import discovery
from controlplane.host.model import KnownCluster, Request
from controlplane.host.plan import join as plan
from controlplane.host.plan import join_trust
from controlplane.host.work import join, join_waits
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess, save_kubeconfig
from tests.unit.controlplane.host.test_join_refused import Hasty

VALUES = '[null, 5, true, "x", "[", [], [1], [null], {}, {"a": 1}, [{}], [[]], [{"type": "Ready"}], "&a [*a]"]'
NONSENSE: list[Any] = json.loads(VALUES)
TOKEN = "abcdef.0123456789abcdef"


class Server:
    """`set`: changes the object that is asked for."""

    def __init__(self) -> None:
        self.url = ""
        self.set: Callable[[Json], object] = lambda body: None

    async def answer(self, request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        meta: Json = {"name": name, "uid": "u", "resourceVersion": "1"}
        body: Json = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
        if "configmaps" in request.path:
            meta["namespace"] = request.path.split("/")[4]
            body |= {"kind": "ConfigMap", "data": {"kubelet": "", "ClusterConfiguration": "", "kubeconfig": ""}}
        elif name == "pods":
            pod = {"metadata": {**meta, "namespace": "ns"}, "spec": {"nodeName": "n1"}}
            body |= {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [pod]}
        elif name == "selfsubjectaccessreviews":
            body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        self.set(body)
        return web.Response(body=json.dumps(body).encode(), content_type="application/json")


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    made, app = Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url, config = f"http://127.0.0.1:{runner.addresses[0][1]}", str(tmp_path / "kubelet.conf")
    save_kubeconfig(config, ClusterAccess(made.url, token="x"))
    own = join_waits._own_client
    monkeypatch.setattr(join_waits, "_own_client", lambda: own(config))
    yield made
    await runner.cleanup()


def changes(value: Any) -> list[Callable[[Json], object]]:
    """Each puts it somewhere else."""

    def of_pods(body: Json) -> None:
        for pod in body.get("items", ()):
            pod["metadata"]["ownerReferences"] = value

    return [
        lambda body: body.update(data=value, status=value),
        lambda body: body.update(data=dict.fromkeys(body.get("data", ()), value), status={"conditions": value}),
        lambda body: body.update(
            data=dict.fromkeys(body.get("data", ()), json.dumps({"networking": value, "controlPlaneEndpoint": value})),
            status={"conditions": [{"type": "Ready", "status": value, "message": value}], "allowed": value},
        ),
        of_pods,
    ]


def steps(server: Server, folder: Path) -> list[Callable[[], Awaitable[object]]]:
    known, request = KnownCluster(ClusterAccess(server.url, token="x")), Request(node="n1")

    async def read() -> None:
        await join.read_cluster(request, known)
        assert isinstance(known.kubelet, str)
        plan.proxy_config("n1", ",".join(known.cluster_cidrs), "")

    async def info() -> None:
        found = await discovery.cluster_info(server.url, None)
        join_trust.is_signed(found, "abcdef")
        join_trust.check_cluster_info(found, TOKEN)

    return [
        read,
        info,
        lambda: join._check_name(request, known),
        lambda: join_waits.addons_on_node("n1", str(folder), Hasty()),
        lambda: join_waits.until_allowed("n1", plan.permissions("nodewright", "nodewright"), Hasty()),
        lambda: join_waits.until_ready("n1", str(folder), Hasty()),
    ]


@pytest.mark.parametrize("value", NONSENSE, ids=json.dumps)
async def test_no_step_ends_with_a_traceback(server: Server, tmp_path: Path, value: Any) -> None:
    for change in changes(value):
        server.set = change
        for step in steps(server, tmp_path):
            try:
                await step()
            except NodewrightError as error:
                assert error.message
