"""nftables transactions through `nft -f -`, the documented interface. Decides nothing."""

from __future__ import annotations

from nodelib import command


async def run(transaction: str) -> None:
    """Commit `transaction`, all or nothing. Raises CommandError with nft's message."""
    await command.run(("nft", "-f", "-"), stdin=transaction.encode(), timeout=60)
