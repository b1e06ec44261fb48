"""The proxy's rulesets are byte for byte those in tests/golden/proxy."""

from __future__ import annotations

import pytest

from nodelib.firewall.objects import BUILT_IN
from tests.golden.proxy.cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_whole_ruleset(case: Case) -> None:
    assert case.fake().dump() == case.path.read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_whole_nftables_table(case: Case) -> None:
    assert case.nft_dump() == case.nft_path.read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_chain_is_left_empty_or_unused(case: Case) -> None:
    """As upstream's checkIPTablesRuleJumps: what is jumped to has rules, what is created is jumped to."""
    for table, content in case.fake().content().items():
        targets = {rule.target for rules in content.chains.values() for rule in rules}
        for name, rules in content.chains.items():
            if name in BUILT_IN[table] or name == "KUBE-PROXY-CANARY":
                continue
            assert name in targets, f"{table} {name} is not used"
            shared = name in ("KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL")
            assert rules or shared or name == "KUBE-FIREWALL", f"{table} {name} is empty"
