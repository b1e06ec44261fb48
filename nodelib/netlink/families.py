"""The families of netfilter's tables and messages: a name for those who decide, a number for the kernel. Pure."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from nodelib.firewall.objects import Family

BRIDGE: Final = "bridge"
TableFamily: TypeAlias = Family | Literal["bridge"]
NF_FAMILY: dict[TableFamily, int] = {Family.IPV4: 2, Family.IPV6: 10, BRIDGE: 7}  # NFPROTO_*, linux/netfilter.h
