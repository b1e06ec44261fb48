"""The host's iptables through the administrator's own command, and so in the same backend."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from nodelib import command

_WAIT = ("iptables", "-w", "10")


async def ensure_rule(table: str, chain: str, arguments: Sequence[str]) -> bool:
    """Insert a rule at the head of a chain unless it is there. True if it was inserted."""
    there = await command.run([*_WAIT, "-t", table, "-C", chain, *arguments], check=False)
    if there.returncode == 0:
        return False
    await command.run([*_WAIT, "-t", table, "-I", chain, "1", *arguments])
    return True


async def list_rules(table: str, chain: str) -> str:
    """The output of `iptables -S` for a chain; "" when there is no iptables or no such chain."""
    done = await command.run([*_WAIT, "-t", table, "-S", chain], check=False)
    return done.text if done.returncode == 0 else ""


async def delete_rule(table: str, listed: str) -> None:
    """Delete a rule as `iptables -S` printed it."""
    await command.run([*_WAIT, "-t", table, "-D", *shlex.split(listed)[1:]])
