"""Which files a rotation removes and compresses, and the new name of the log."""

from __future__ import annotations

import pytest

from agent.logs.plan.rotation import RotationPlan, plan_rotation

_NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z
_NEW = "0.log.20260101-000000"


@pytest.mark.parametrize(
    ("names", "most", "expected"),
    [
        ([], 5, RotationPlan((), (), _NEW)),
        (["0.log", "1.log", "1.log.20250101-000000"], 5, RotationPlan((), (), _NEW)),
        (["0.log.20250101-000000"], 5, RotationPlan((), ("0.log.20250101-000000",), _NEW)),
        (["0.log.20250101-000000.gz"], 5, RotationPlan((), (), _NEW)),
        (["0.log.20250101-000000.gz"], 2, RotationPlan(("0.log.20250101-000000.gz",), (), _NEW)),
        (
            ["0.log.20250101-000000.gz", "0.log.20250102-000000.gz", "0.log.20250103-000000"],
            4,
            RotationPlan(("0.log.20250101-000000.gz",), ("0.log.20250103-000000",), _NEW),
        ),
        (
            ["0.log.20250101-000000", "0.log.20250101-000000.gz", "0.log.20250102-000000.tmp"],
            5,
            RotationPlan(("0.log.20250101-000000", "0.log.20250102-000000.tmp"), (), _NEW),
        ),
        ([_NEW + ".gz"], 5, RotationPlan((), (), "0.log.20260101-000001")),
    ],
    ids=["first", "others", "pack", "packed", "only two", "excess", "crashed", "same second"],
)
def test_plan(names: list[str], most: int, expected: RotationPlan) -> None:
    assert plan_rotation("0.log", names, most, _NOW) == expected
