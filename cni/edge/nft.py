"""nftables transactions through `nft -f -`, the interface its authors document. Decides nothing."""

from __future__ import annotations

from nodelib import command


async def run(transaction: str) -> None:
    """All or nothing. Raises CommandError with nft's own words."""
    await command.run(("nft", "-f", "-"), stdin=transaction.encode(), timeout=60)
