"""The resources that a pod's containers and probes use or are denied, and their JSON document."""

from __future__ import annotations

import json

from agent.explain.model import Cost, Explanation
from agent.explain.plan.document import from_json, to_json
from agent.explain.plan.resource_cost import costs
from agent.probes.model import Outcome, ProbeAnswer, ProbeCost, ProbeKind, Verdict
from agent.probes.plan import answered, specs
from agent.stats.model import CgroupSample, ContainerStats, Cpu, Memory, PodStats, Pressure, Stall
from nodelib.json_values import Json
from tests.builders.pods import container, pod

SECOND, MIB = 1_000_000_000, 1 << 20
EXEC = {"exec": {"command": ["true"]}, "periodSeconds": 1}
GET = {"httpGet": {"port": 80}, "periodSeconds": 10}


def stats(cpu: Cpu) -> PodStats:
    sample = CgroupSample("/pod/app", 100 * SECOND, cpu, Memory(30 * MIB, 20 * MIB), 1)
    one = ContainerStats("c1", "app", "r/app:1", 0, sample)
    return PodStats("u", "shop", "web", 0, sample, (one,))


def cost_of(used: Cpu, limit: str = "") -> Cost:
    web = pod(container("app", resources={"limits": {"cpu": limit}} if limit else {}))
    [found] = costs(web, stats(used), ())
    return found


def test_a_container_that_may_run() -> None:
    found = cost_of(Cpu(usage=25 * SECOND))
    assert (found.of, found.action) == ("container app", "")
    assert found.text == "25.0 s of CPU (25.0 % of a core since its start), 20 MiB of memory"


def test_a_throttled_container_and_its_limit() -> None:
    cpu = Cpu(usage=10 * SECOND, periods=1000, throttled_periods=380, throttled=35 * SECOND)
    found = cost_of(cpu, "100m")
    assert "throttled in 38 % of its periods, 35.0 s (limit 100m)" in found.text
    assert "Raise resources.limits.cpu of container app from 100m" in found.action
    assert found.metrics["throttled_share"] == 0.38


def test_throttling_that_does_not_matter_gets_no_advice() -> None:
    assert cost_of(Cpu(periods=1000, throttled_periods=20, throttled=SECOND), "1").action == ""
    assert cost_of(Cpu(periods=20, throttled_periods=20, throttled=SECOND), "1").action == "", "it has just begun"


def test_a_container_that_waits_for_a_busy_node() -> None:
    found = cost_of(Cpu(usage=SECOND, pressure=Pressure(some=Stall(avg60=45.0))))
    assert "waited for CPU for 45 % of the last minute" in found.text
    assert "raise resources.requests.cpu of container app" in found.action


def probed(probe: Json, kind: ProbeKind, cost: ProbeCost, verdict: Verdict = Verdict.SUCCESS) -> Cost:
    field = {ProbeKind.READINESS: "readinessProbe", ProbeKind.LIVENESS: "livenessProbe"}[kind]
    answer = ProbeAnswer("app", kind, Outcome(verdict), 0, 0, 1, 1, float(probe["periodSeconds"]), cost)
    [found] = costs(pod(container("app") | {field: probe}), None, [answer])
    return found


def test_a_probe_says_how_long_it_takes() -> None:
    found = probed(GET, ProbeKind.READINESS, ProbeCost(40, 0.2, 0.031))
    assert (found.of, found.action) == ("readinessProbe of app", "")
    assert found.text == "httpGet every 10 s: 5 ms on average, 31 ms at worst of 40"
    assert found.metrics["a_minute"] == 6


def test_a_probe_that_fails_is_not_said_to_answer_soon() -> None:
    cost = ProbeCost(40, 0.08, 0.031)
    for verdict in (Verdict.FAILURE, Verdict.ERROR):
        found = probed(GET, ProbeKind.READINESS, cost, verdict)
        assert found.text == "httpGet every 10 s: fails, in 2 ms on average, 31 ms at worst of 40"
        assert found.metrics["failing"] == 1
    assert probed(GET, ProbeKind.READINESS, cost, Verdict.WARNING).metrics["failing"] == 0


def test_a_probe_that_is_nearly_always_under_way() -> None:
    found = probed(EXEC, ProbeKind.LIVENESS, ProbeCost(100, 40.0, 1.5))
    assert found.text == ("exec every 1 s: 400 ms on average, 1.5 s at worst of 100; 40 % of the time one is under way")
    assert "Raise its periodSeconds, or probe by httpGet" in found.action


def test_every_attempt_counts_whatever_it_answers() -> None:
    [spec] = specs(container("app", livenessProbe=GET))
    answer = answered(None, spec, "app", Outcome(Verdict.SUCCESS), 0, 0.25)
    answer = answered(answer, spec, "app", Outcome(Verdict.FAILURE), 1, 0.5)
    assert (answer.cost, answer.times) == (ProbeCost(2, 0.75, 0.5), 1)
    silent = ProbeAnswer("app", ProbeKind.LIVENESS, None, 0, 0, 0, 3, 5)
    assert costs(pod(container("app", livenessProbe=GET)), None, [silent]) == ()


def test_the_document_keeps_its_keys_and_is_read_back() -> None:
    cost = Cost("container app", "1.0 s of CPU", {"cpu_seconds": 1.0}, "Raise it.")
    explanation = Explanation("shop", "web", "u", "n1", "Running", "Running and ready", costs=(cost,))
    document = to_json(explanation)
    assert document["costs"] == [
        {"of": "container app", "told": "1.0 s of CPU", "figures": {"cpu_seconds": 1.0}, "action": "Raise it."}
    ]
    assert from_json(json.loads(json.dumps(document))) == explanation
