"""ServiceCIDR objects become ranges, and the backends take those of their family."""

from __future__ import annotations

from dataclasses import replace

from nodelib.json_values import Json
from proxy.backends.context import NodeContext
from proxy.watches import update_ranges
from tests.unit.proxy.build import CONTEXT


def cidr(name: str, *cidrs: object) -> Json:
    return {"metadata": {"name": name}, "spec": {"cidrs": list(cidrs)}}


def test_ranges_come_change_and_go() -> None:
    ranges: dict[str, tuple[str, ...]] = {}
    update_ranges(ranges, "ADDED", cidr("kubernetes", "10.96.0.0/12", "fd00:10:96::/108"))
    update_ranges(ranges, "ADDED", cidr("more", "10.200.0.7/16", "nonsense", 7))
    assert ranges == {"kubernetes": ("10.96.0.0/12", "fd00:10:96::/108"), "more": ("10.200.0.0/16",)}
    update_ranges(ranges, "MODIFIED", {"metadata": {"name": "more"}, "spec": None})
    update_ranges(ranges, "DELETED", cidr("kubernetes", "10.96.0.0/12"))
    assert ranges == {}


def test_a_family_takes_its_own() -> None:
    facts = NodeContext(replace(CONTEXT))
    assert facts.service_cidrs_changed(("10.96.0.0/12", "fd00:10:96::/108"))
    assert facts.ctx.service_cidrs == ("10.96.0.0/12",)
    assert not facts.service_cidrs_changed(("10.96.0.0/12",))
    assert facts.service_cidrs_changed(())
