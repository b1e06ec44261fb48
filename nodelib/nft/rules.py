"""nftables rules as values: each has a text, as nft prints it, and a bytecode, as the kernel takes it. Pure.

Only the statements that this project's rules need (`matches.py`, `actions.py`). They are encoded here because nft 1.0.6
(Debian 12) runs out of registers with two IPv6 addresses in one key, and so that rules and elements go into one
transaction. The numbers are those of linux/netfilter/nf_tables.h.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodelib.firewall.objects import Family
from nodelib.netlink.framing import attribute, nested, text_attribute
from nodelib.nft.actions import Action
from nodelib.nft.matches import Match

Statement = Match | Action


@dataclass(frozen=True, slots=True)
class NftRule:
    """Statements in their order. Each decides whether the next one is reached."""

    statements: tuple[Statement, ...]
    comment: str = ""

    def text(self, family: Family) -> str:
        words = [one.text(family) for one in self.statements]
        return " ".join([*words, f'comment "{self.comment}"'] if self.comment else words)

    def body(self, table: str, chain: str, family: Family) -> bytes:
        """The attributes of NFT_MSG_NEWRULE."""
        expressions = b"".join([one.code(family) for one in self.statements])
        parts = [text_attribute(1, table), text_attribute(2, chain), nested(4, expressions)]
        if self.comment:
            # One type-length-value of libnftnl: a comment.
            text = self.comment.encode() + b"\0"
            parts.append(attribute(7, bytes((0, len(text))) + text))
        return b"".join(parts)


def rule(*statements: Statement, comment: str = "") -> NftRule:
    return NftRule(statements, comment)
