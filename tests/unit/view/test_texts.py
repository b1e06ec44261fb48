"""Messages are bounded, whatever the objects and answers are."""

from __future__ import annotations

import json

import yaml

from tests.unit.view.world import SCRIPT, running
from view.model.network import Hop, Leg, Traced, Way
from view.model.objects import Look
from view.model.pods import Wait, Why
from view.plan import texts

LOOK = Look("pod", ("shop", "web"))


def test_an_object_is_yaml_without_managed_fields() -> None:
    pod = running("web", "10.0.1.2", "node1", managedFields=[{"manager": "x"}], labels={"note": SCRIPT})
    text = texts.object_text(pod)
    assert text.startswith("apiVersion: v1\nkind: Pod\n")
    read = yaml.safe_load(text)
    assert "managedFields" not in read["metadata"] and read["metadata"]["labels"]["note"] == SCRIPT
    assert pod["metadata"]["managedFields"], "the object itself stays as it is"


def test_a_large_object_is_cut() -> None:
    pod = running("web", "10.0.1.2", "node1", annotations={"large": "x" * 1_000_000})
    text = texts.object_text(pod)
    assert len(text.encode()) <= 128 * 1024 and "characters" in text


def test_many_rows_are_several_messages() -> None:
    changed = {f"pod/a/{at}": {"key": f"pod/a/{at}"} if at % 2 else None for at in range(1000)}
    said = [json.loads(one) for one in texts.rows(changed)]
    assert len(said) == 4
    assert sum(len(one["rows"]) for one in said) == sum(len(one["gone"]) for one in said) == 500


def test_an_answer_is_cut_in_every_part() -> None:
    long = "x" * 100_000
    why = Why(long, False, True, (Wait(long, long, long),) * 500, (long,) * 500, (("main", (long,) * 10),))
    said = json.loads(texts.pod_detail(LOOK, running("web", "", "node1"), why, {}))
    assert len(said["why"]["waits"]) == len(said["why"]["ends"]) == 40
    assert len(json.dumps(said)) < 40 * 4 * 2100 + 100_000
    assert len(texts.problem(long)) < 5000


def test_a_long_walk_says_how_much_is_left_out() -> None:
    hop = Hop("nat", "KUBE-SERVICES", "-j X", "", 1, True, True)
    way = Way(True, "ARRIVES", (Leg("node1", "", "a", "b", (hop,) * 500, "", ""),))
    said = json.loads(texts.traced(Traced(("ARRIVES",), "a", "b", (way,) * 100)))
    assert len(said["ways"]) == 40
    assert (len(said["ways"][0]["legs"][0]["hops"]), said["ways"][0]["legs"][0]["left_out"]) == (200, 300)


def test_lines_that_are_left_out_are_counted() -> None:
    assert texts.bounded(["a"] * 402)[-1] == "… and 2 more lines"
    assert texts.bounded(["a\x1bb"]) == ["a\\x1bb"]
