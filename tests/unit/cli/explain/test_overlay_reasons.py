"""What a trace says of the rules that keep pods' packets from the end of the overlay."""

from __future__ import annotations

import pytest

from cli.explain.facts import Facts
from cli.explain.reasons import reason
from nodelib.firewall.trace_model import Hop


@pytest.mark.parametrize(
    ("rule", "meaning"),
    [
        ("-A NODEWRIGHT-OVERLAY -i nw0 -p udp -m udp --dport 4789 -j DROP", "do not go to the overlay's own port"),
        ("-A NODEWRIGHT-OVERLAY -d 10.244.0.0/16 -m addrtype ! --dst-type LOCAL -j RETURN", "it is for a pod"),
    ],
)
def test_the_guard_of_the_overlay(rule: str, meaning: str) -> None:
    assert meaning in reason(Hop("filter", "NODEWRIGHT-OVERLAY", rule), Facts())
