"""The judgement of one control of a benchmark. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found, and what to do when it is not a pass."""

    status: Literal["pass", "fail", "unknown"]
    finding: str
    fix: str = ""


def good(finding: str) -> Verdict:
    return Verdict("pass", finding)


def bad(finding: str, fix: str) -> Verdict:
    return Verdict("fail", finding, fix)


def unknown(finding: str, fix: str = "") -> Verdict:
    return Verdict("unknown", finding, fix)
