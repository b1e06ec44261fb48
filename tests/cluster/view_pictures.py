"""Makes the pictures of docs/view.md from a real cluster: `python -m tests.cluster.view_pictures NAME [DIR]`.

It makes a namespace `shop` in the cluster NAME of `up`, with a few pods, and removes it at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from controlplane.cluster.edge import state
from controlplane.cluster.model import Cluster
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import ApiError, KubeClient
from policy.watches.cluster_policies import GROUP, POLICIES, VERSION
from tests.browser import Browser, chromium, driven
from tests.builders.cluster_policies import cluster_policy, ingress, spaces
from tests.builders.pods import container, manifest, web
from tests.builders.policies import apps, policy
from tests.builders.services import WEB_PORT, service
from tests.cluster.command_line import PROJECT
from tests.cluster.test_view import DETAIL, LIVE, ROW, TEXT, viewing
from tests.cluster.world import Object, World, holds

_LARGEST = 200_000  # bytes of a picture
_ADMIN = "monitoring-may-ask"  # a ClusterNetworkPolicy
# The name of the cluster, in the texts that are shown, is nobody's business who looks at a picture.
_UNNAMED = """(() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let one = texts.nextNode(); one; one = texts.nextNode()) {
    const shown = one.data.replace(` --name ${arguments[0]}`, "");
    one.data = one.parentElement.id === "cluster" ? "shop" : shown;
  }
  return true;
})()"""


def _labelled(app: str, obj: Object) -> Object:
    obj["metadata"]["labels"] = {"app": app}
    return obj


async def main(name: str, folder: Path) -> None:
    cluster = state.load(name)
    assert cluster is not None, f"there is no cluster {name}"
    async with KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-pictures") as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        try:
            world = World(cluster, api, "shop")
            await holds(lambda: api.get("/api/v1/namespaces/shop/serviceaccounts/default"), "the account is there")
            await _pictures(world, cluster, folder)
        finally:
            with contextlib.suppress(ApiError):
                await api.delete(f"{POLICIES}/{_ADMIN}")
            await api.delete("/api/v1/namespaces/shop")


async def _pictures(world: World, cluster: Cluster, folder: Path) -> None:
    await _shop(world, cluster)
    with chromium() as window:
        async with viewing(cluster.name) as url, driven(window) as browser:
            await browser.open(url)
            await browser.until(f"{LIVE} && {TEXT}.includes('CreateContainerConfigError')", "pod/shop/cart-1")
            await browser.until(f"{TEXT}.includes('1 of 2 ready') || {TEXT}.includes('1 of 1')", "service/shop/cart")
            await browser.until("document.querySelectorAll('#nodes .wiring .chip').length >= 4", seconds=40)
            await browser.size(1180, 720)
            await browser.value(f"{ROW}.querySelector('a').focus()", "service/shop/cart")
            await _picture(browser, folder / "view-cluster.png", cluster.name)
            await browser.open(f"{url}#/pod/shop/cart-1")
            await browser.until(f"{DETAIL}.includes('Create ConfigMap')")
            await browser.size(1180, 600, dark=True)
            await _picture(browser, folder / "view-why.png", cluster.name)
            await browser.open(f"{url}#/pod/shop/web-2")
            await browser.until(f"{DETAIL}.includes('migrate')")
            await browser.size(390, 844)
            await _picture(browser, folder / "view-start.png", cluster.name)
            await browser.open(f"{url}#/pod/shop/client")
            await browser.size(900, 470, dark=True)
            await browser.until("[...document.querySelectorAll('.costs .spark polyline')].length > 2", seconds=40)
            await asyncio.sleep(25)
            await browser.value("document.querySelector('[data-part=costs]').scrollIntoView()")
            await _picture(browser, folder / "view-uses.png", cluster.name)
            await browser.size(1180, 780)
            await browser.open(f"{url}#/packet?from=shop/client&to=shop/cart:80")
            await browser.until("document.querySelectorAll('.live.good').length > 0", seconds=60)
            await browser.until("document.querySelectorAll('#refused tbody tr').length > 0", seconds=60)
            await asyncio.sleep(8)  # the small lines get a history
            await _picture(browser, folder / "view-packet.png", cluster.name, moves=True)
            if cluster.options.enforces_policies:
                await browser.size(1180, 600)
                await browser.value("document.querySelector('#refused').scrollIntoView()")
                await _picture(browser, folder / "view-refused.png", cluster.name, moves=True)
            await browser.open(f"{url}#/node//node2")
            await browser.size(1280, 900)
            await browser.until("document.querySelectorAll('.lanes tbody tr').length > 0")
            await _picture(browser, folder / "view-node.png", cluster.name)
            await browser.until("document.querySelectorAll('[aria-label=Links] tbody tr').length > 3", seconds=30)
            await browser.value("document.querySelector('[aria-label=Links]').closest('section').scrollIntoView()")
            await browser.size(1280, 700)
            await _picture(browser, folder / "view-wiring.png", cluster.name)
            if cluster.options.enforces_policies:
                await browser.open(f"{url}#/networkpolicy/shop/only-cart")
                await browser.until("document.querySelectorAll('.rules tbody tr').length > 0", seconds=30)
                await browser.size(900, 470)
                await _picture(browser, folder / "view-policy.png", cluster.name)


async def _shop(world: World, cluster: Cluster) -> None:
    """Two Services, their pods, one of which waits; a client that calls both, one of which a policy forbids."""
    setup = container("migrate", script="sleep 1")
    for app in ("web", "cart"):
        await world.create(service(app, namespace="shop", selector={"app": app}, ports=[WEB_PORT]))
    if cluster.options.enforces_policies:
        only = policy("only-cart", namespace="shop", select={"app": "web"}, ingress=[{"from": [apps("cart")]}])
        await world.api.post("/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies", only)
        kind = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "ClusterNetworkPolicy"}
        rules = [ingress("Accept", spaces(**{"kubernetes.io/metadata.name": "kube-system"}))]
        admin = cluster_policy(_ADMIN, subject=spaces(**{"kubernetes.io/metadata.name": "shop"}), ingress=rules)
        await world.api.post(POLICIES, {**kind, "metadata": {"name": _ADMIN}, "spec": admin["spec"]})
    await world.create(_labelled("web", manifest("web-1", web(), nodeName="node1")))
    await world.create(_labelled("web", manifest("web-2", web(), initContainers=[setup], nodeName="node2")))
    late = {**web("cart"), "envFrom": [{"configMapRef": {"name": "prices"}}]}
    await world.create(_labelled("cart", manifest("cart-1", late, nodeName="node1")))
    await world.create(_labelled("cart", manifest("cart-2", web("cart"), nodeName="node2")))
    works = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    calls = f"while true; do wget -qO- -T 1 http://cart/hostname; wget -qO- -T 1 http://web/hostname; {works}; done"
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    limits = {"limits": {"cpu": "100m", "memory": "64Mi"}}
    caller = container("client", script=calls, resources=limits, readinessProbe=probe)
    await world.create(_labelled("client", manifest("client", caller, nodeName="node1")))
    for name in ("web-1", "web-2", "cart-2", "client"):
        await world.ready(name)


async def _picture(browser: Browser, file: Path, cluster: str, *, moves: bool = False) -> None:
    """`moves`: there is always something new."""
    if not moves:
        await browser.until("document.getAnimations().length === 0")
    await browser.value(_UNNAMED, cluster)
    png = await browser.picture()
    assert len(png) < _LARGEST, f"{file.name} has {len(png)} bytes"
    await asyncio.to_thread(file.write_bytes, png)
    print(f"{file}: {len(png)} bytes")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else PROJECT / "docs"))
