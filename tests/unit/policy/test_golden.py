"""The policy tables are byte for byte those in tests/golden/policy."""

from __future__ import annotations

import pytest

from nodelib.firewall.objects import Family
from tests.golden.policy.cases import CASES, Case


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_whole_table(case: Case, family: Family) -> None:
    assert case.dump(family) == case.path(family).read_text()
