"""Which iptables this machine uses: the nft variant, the legacy one, or whatever `iptables` is.

Two variants write to two different places in the kernel, and a node must use the one that the others on
it use. Follows kubernetes-sigs/iptables-wrappers: a hint chain decides (KUBE-IPTABLES-HINT of the kubelet,
and a canary of ours from an earlier run), else the variant that has more rules.
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
class Backend:
    """`variant` is "nft", "legacy" or "" (the plain names); `reason` says why it was taken."""

    variant: str
    reason: str = ""

    def tool(self, family: Family) -> str:
        base = "iptables" if family is Family.IPV4 else "ip6tables"
        return f"{base}-{self.variant}" if self.variant else base

    def restore(self, family: Family) -> str:
        return f"{self.tool(family)}-restore"

    def save(self, family: Family) -> str:
        return f"{self.tool(family)}-save"


DEFAULT = Backend("")


@dataclass(frozen=True, slots=True)
class Seen:
    """What one variant has: a hint chain, and its number of rules, both families together."""

    hint: bool
    rules: int


def choose(nft: Seen, legacy: Seen) -> Backend:
    """The variant to use. Pure."""
    if nft.hint:
        return Backend("nft", "a hint chain stands in the nft tables")
    if legacy.hint:
        return Backend("legacy", "a hint chain stands in the legacy tables")
    if legacy.rules > nft.rules:
        return Backend("legacy", f"legacy has {legacy.rules} rules, nft {nft.rules}")
    return Backend("nft", f"nft has {nft.rules} rules, legacy {legacy.rules}")


async def detect(*, run: Run = command.run, which: Which = shutil.which) -> Backend:
    """Look at what stands in the kernel. Without both variants installed there is nothing to choose."""
    variants = [variant for variant in ("nft", "legacy") if which(f"iptables-{variant}-save")]
    if len(variants) < 2:
        return Backend("", "only one variant of iptables is installed")
    nft, legacy = await asyncio.gather(_look("nft", run, which), _look("legacy", run, which))
    return choose(nft, legacy)


async def _look(variant: str, run: Run, which: Which) -> Seen:
    hint, rules = False, 0
    for family in Family:
        tool = Backend(variant).save(family)
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
