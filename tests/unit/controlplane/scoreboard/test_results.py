"""What counts of the runs that there are, what is left, and in which order."""

from __future__ import annotations

from dataclasses import replace

from controlplane.scoreboard.model import Group, Match, Outcome, Part, Partition, Program, Run, Spec, Step
from controlplane.scoreboard.plan import results
from controlplane.scoreboard.plan.schedule import Estimate, ordered

GROUP = Group("g", "", Match(), seconds=10.0)
SLOW = Group("slow", "", Match(), seconds=100.0)
NAMES = tuple(f"[sig-node] Pods {word}" for word in ("a", "b", "c"))
SPECS = tuple(Spec(Program.E2E, name) for name in NAMES)
ONE, TWO = Part("g-01", GROUP, SPECS[:2]), Part("g-02", GROUP, SPECS[2:])
PASSED, FAILED = Outcome("passed", 1.0), Outcome("failed", 2.0, "why")


def _run(part: str, outcomes: dict[str, Outcome], *, maker: str = "nodewright", day: int = 1, **more: object) -> Run:
    run = Run(part, maker, Program.E2E, "v1", f"c{day}", f"2026-11-{day:02}T00:00:00Z", "2 CPUs", 60.0, outcomes)
    return replace(run, **more)  # type: ignore[arg-type]  # fields by their names


def test_a_run_of_the_part_as_it_is_counts_as_it_is() -> None:
    run = _run("g-01", {NAMES[0]: PASSED}, missed=(NAMES[1],), problem="ended")
    assert results.gather([run], [ONE, TWO], "v1") == {("g-01", "nodewright"): run}
    assert results.gather([run], [ONE, TWO], "v2") == {}


def test_results_follow_their_specs_into_other_parts() -> None:
    runs = [_run("g-01", dict.fromkeys(NAMES, PASSED), day=1), _run("g-01", {NAMES[1]: FAILED}, day=2)]
    found = results.gather(runs, [ONE, TWO], "v1")
    assert found["g-01", "nodewright"].outcomes == {NAMES[0]: PASSED, NAMES[1]: FAILED}
    assert found["g-01", "nodewright"].commit == "c2 c1"
    assert (found["g-02", "nodewright"].outcomes, found["g-02", "nodewright"].seconds) == ({NAMES[2]: PASSED}, 20.0)


def test_a_spec_of_the_same_name_in_the_other_suite_is_another() -> None:
    run = _run("g-01", dict.fromkeys(NAMES, PASSED), program=Program.NODE)
    assert results.gather([run], [ONE, TWO], "v1") == {}


def test_a_newer_run_that_did_not_reach_a_spec_takes_nothing_away() -> None:
    runs = [
        _run("g-01", {NAMES[0]: PASSED, NAMES[1]: PASSED}),
        _run("g-01", {NAMES[0]: FAILED}, day=2, missed=NAMES[1:2]),
    ]
    (run,) = results.gather(runs, [ONE], "v1").values()
    assert run.outcomes == {NAMES[0]: FAILED, NAMES[1]: PASSED} and run.missed == ()


def test_what_is_left() -> None:
    assert results.left([ONE], {}) == ((Step(ONE, "nodewright"), Step(ONE, "upstream")), ())
    done = _run("g-01", {NAMES[0]: PASSED}, missed=(NAMES[1],))
    other = replace(done, maker="upstream")
    runs = {("g-01", "nodewright"): done, ("g-01", "upstream"): other}
    missed = replace(ONE, specs=SPECS[1:2])
    assert results.left([ONE], runs) == ((), (Step(missed, "nodewright"), Step(missed, "upstream")))
    assert results.left([ONE], runs, again=True)[0] == (Step(ONE, "nodewright"), Step(ONE, "upstream"))
    partly = {**runs, ("g-01", "upstream"): replace(other, missed=())}
    assert results.left([ONE], partly) == ((Step(missed, "upstream"),), (Step(missed, "nodewright"),))
    nothing = {**runs, ("g-01", "upstream"): replace(other, outcomes={}, missed=(), problem="no room")}
    assert results.left([ONE], nothing) == ((), (Step(missed, "nodewright"), Step(ONE, "upstream")))
    failed = {**runs, ("g-01", "upstream"): replace(other, outcomes={NAMES[0]: FAILED})}
    second = Step(replace(ONE, specs=SPECS[:1]), "upstream", second=True)
    assert results.left([ONE], failed) == ((), (second, Step(missed, "nodewright"), Step(missed, "upstream")))


def test_the_second_try_is_kept_beside_the_first() -> None:
    first = _run("g-01", {NAMES[0]: FAILED, NAMES[1]: FAILED})
    made = results.with_second(first, _run("g-01", {NAMES[0]: PASSED}))
    assert made.outcomes == {NAMES[0]: replace(FAILED, second=PASSED), NAMES[1]: FAILED} and made.tried == 2
    assert results.second_tries(ONE, made) == ()
    unable = results.with_second(first, _run("g-01", {}, problem="no room"))
    assert unable.problem == "second try: no room" and unable.outcomes == first.outcomes
    assert len(results.second_tries(ONE, unable)) == 1
    assert results.with_second(unable, _run("g-01", {NAMES[0]: PASSED})).problem == ""


def test_conformance_comes_first_and_then_what_shows_the_most_in_a_minute() -> None:
    conformance = Part("slow-conformance-01", SLOW, (Spec(Program.E2E, "[sig-node] Pods d [Conformance]"),))
    slow = Part("slow-01", SLOW, (Spec(Program.E2E, "[sig-node] Pods e"),))
    parts = (slow, TWO, ONE, conformance)
    estimate = Estimate(Partition(parts, ()), {})
    steps = [Step(part, maker) for part in parts for maker in part.group.makers]
    found = ordered(steps, estimate)
    assert [step.part.name for step in found][::2] == ["slow-conformance-01", "g-01", "g-02", "slow-01"]
    assert [step.maker for step in found] == ["nodewright", "upstream"] * 4
    assert estimate.seconds(Step(ONE, "upstream")) == 50.0


def test_estimates_follow_what_was_measured() -> None:
    run = _run("g-01", {NAMES[0]: PASSED, NAMES[1]: FAILED}, seconds=80.0)
    estimate = Estimate(Partition((ONE, TWO), ()), {("g-01", "nodewright"): run})
    assert estimate.seconds(Step(ONE, "upstream")) == 80.0  # the same part with the other maker
    assert estimate.seconds(Step(TWO, "upstream")) == 40.0  # the same group
    assert estimate.seconds(Step(replace(ONE, specs=SPECS[1:2]), "nodewright", second=True)) == 32.0
    assert estimate.total([Step(ONE, "upstream"), Step(TWO, "upstream")]) == 120.0
