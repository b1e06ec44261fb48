"""Finds the iptables variant that this machine uses: nft, legacy, or whatever `iptables` is.

The two variants write to different places in the kernel, and all programs of a node must use the same one. As in
kubernetes-sigs/iptables-wrappers, a hint chain decides (the kubelet's KUBE-IPTABLES-HINT, or a canary of an earlier
run of ours), else the variant with more rules.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nodelib import command
from nodelib.command import CommandError, Completed
from nodelib.firewall.objects import Family

HINT_CHAINS = ("KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-PROXY-CANARY")

Run = Callable[..., Awaitable[Completed]]
Which = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Variant:
    """`name` is "nft", "legacy" or "" (the tools' plain names); `reason` says why it was chosen."""

    name: str
    reason: str = ""

    def tool(self, family: Family) -> str:
        base = "iptables" if family is Family.IPV4 else "ip6tables"
        return f"{base}-{self.name}" if self.name else base

    def restore(self, family: Family) -> str:
        return f"{self.tool(family)}-restore"

    def save(self, family: Family) -> str:
        return f"{self.tool(family)}-save"


DEFAULT = Variant("")


@dataclass(frozen=True, slots=True)
class Seen:
    """What one variant has in the kernel: whether a hint chain, and how many rules, both families together."""

    hint: bool
    rules: int


def choose(nft: Seen, legacy: Seen) -> Variant:
    """The variant to use. Pure."""
    if nft.hint:
        return Variant("nft", "the nft tables have a hint chain")
    if legacy.hint:
        return Variant("legacy", "the legacy tables have a hint chain")
    if legacy.rules > nft.rules:
        return Variant("legacy", f"legacy has {legacy.rules} rules, nft {nft.rules}")
    return Variant("nft", f"nft has {nft.rules} rules, legacy {legacy.rules}")


async def detect(*, run: Run = command.run, which: Which = shutil.which) -> Variant:
    """Choose by what the kernel has. Unless both variants are installed there is nothing to choose."""
    installed = [name for name in ("nft", "legacy") if which(f"iptables-{name}-save")]
    if len(installed) < 2:
        return Variant("", "only one variant of iptables is installed")
    nft, legacy = await asyncio.gather(_inspect("nft", run, which), _inspect("legacy", run, which))
    return choose(nft, legacy)


async def _inspect(name: str, run: Run, which: Which) -> Seen:
    hint, rules = False, 0
    for family in Family:
        tool = Variant(name).save(family)
        if not which(tool):
            continue
        try:
            # Without -t the legacy tool reads only tables that are in use; with it, it would create them.
            done = await run((tool,), timeout=60)
        except CommandError:
            continue  # a variant that cannot be read (no kernel support) has no rules
        for line in done.stdout.splitlines():
            if line.startswith(b"-"):
                rules += 1
            elif line.startswith(b":") and line[1:].split(b" ", 1)[0].decode(errors="replace") in HINT_CHAINS:
                hint = True
    return Seen(hint, rules)
