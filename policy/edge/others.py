"""Looks for another implementation of network policies on this node: two of them would both drop."""

from __future__ import annotations

import asyncio
import os

from nodelib import command
from nodelib.command import CommandError
from nodelib.json_values import decode, object_or_empty, objects_in

# CNI plugins that enforce network policies themselves.
_PLUGINS = {
    "calico": "Calico",
    "cilium-cni": "Cilium",
    "antrea": "Antrea",
    "weave-net": "Weave Net",
    "kube-ovn": "Kube-OVN",
    "ovn-k8s-cni-overlay": "OVN-Kubernetes",
    "aws-cni": "Amazon VPC CNI",
    "azure-vnet": "Azure CNI",
}
# Tables and chains of those that stand beside any CNI plugin.
_RULES = {
    "kube-network-policies": "kube-network-policies",
    "kindnet-network-policies": "kindnet",
    "KUBE-ROUTER-FORWARD": "kube-router",
    "KUBE-NWPLCY-DEFAULT": "kube-router",
    "cali-FORWARD": "Calico",
    "WEAVE-NPC": "Weave Net",
    "CILIUM_FORWARD": "Cilium",
}
_LARGEST = 1 << 20


async def find(cni_folder: str) -> str:
    """Which other implementation is here, and what shows it; "" for none."""
    found = await asyncio.to_thread(_by_plugin, cni_folder)
    return found or await _by_rules()


def _by_plugin(folder: str) -> str:
    """The first configuration in the order of names is the one that the runtime uses."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith((".conf", ".conflist", ".json")))
    except OSError:
        return ""
    for name in names[:1]:
        try:
            with open(os.path.join(folder, name), "rb") as file:
                config = object_or_empty(decode(file.read(_LARGEST)))
        except (OSError, ValueError):
            continue
        for plugin in (config, *objects_in(config.get("plugins"))):
            if other := _PLUGINS.get(str(plugin.get("type", ""))):
                return f"{other} is the pod network ({os.path.join(folder, name)})"
    return ""


async def _by_rules() -> str:
    try:
        done = await command.run(("nft", "list", "chains"), timeout=60)
    except CommandError:
        return ""  # iptables of the legacy kind cannot be seen either; the plugin's configuration can
    words = set(done.text.split())
    for mark, other in _RULES.items():
        if mark in words:
            return f"{other} writes rules here ({mark} in `nft list chains`)"
    return ""
