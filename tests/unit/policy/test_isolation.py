"""Which policies isolate which pods: of a namespace with very many of both only what has changed is made again."""

from __future__ import annotations

import random

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from policy.model import Direction, Name
from policy.plan import parse
from policy.plan.entries import MOST
from policy.plan.index import Index
from policy.plan.isolation import Isolated, Isolation
from tests.builders.policies import apps, block, pod, policy
from tests.cpu_time import least

MANY, PODS = 5000, 110


def put(index: Index, obj: Json) -> None:
    if "podSelector" in obj["spec"]:
        found, _ = parse.policy(obj)
        index.set_policy(found.name, found)
    else:
        one = parse.pod(obj)
        index.set_pod(one.name, one)


class World:
    def __init__(self) -> None:
        self.index, self.isolation = Index(), Isolation(Family.IPV4, "node1")
        for name in ("a", "b"):
            self.index.set_namespace(name, {})

    def plan(self) -> Isolated:
        found = self.isolation.of(self.index, self.index.take_changed())
        self.index.forget(set(found.selections))
        return found


def isolated(found: Isolated) -> dict[Direction, dict[Name, list[Name]]]:
    return {
        direction: {pod: [one.policy.name for one in policies] for pod, policies in by_pod.items()}
        for direction, by_pod in found.by_pod.items()
    }


def crowded() -> World:
    world = World()
    for number in range(PODS):
        put(world.index, pod(f"e{number}", f"10.0.1.{number + 1}"))
    for number in range(MANY):
        put(world.index, policy(f"p{number}"))
    world.plan()
    return world


def test_any_history_isolates_as_a_new_plan_would() -> None:
    for seed in range(150):
        chance = random.Random(seed)
        world, objects = World(), dict[tuple[str, str], Json]()
        for _ in range(chance.randint(3, 40)):
            space, name = chance.choice("ab"), chance.choice("xyzw")
            if chance.random() < 0.5:
                labels = {chance.choice("kl"): chance.choice("12")}
                where = chance.choice(["node1", "node1", "node2"])
                obj = pod(name, f"10.0.{ord(space)}.{ord(name)}", namespace=space, labels=labels, node=where)
            else:
                select = chance.choice([None, {"k": "1"}, {"l": "2"}])
                types = chance.choice([["Ingress"], ["Egress"], ["Ingress", "Egress"]])
                rules = chance.choice([[], [{"from": [apps("x")]}]])
                obj = policy(f"p{name}", namespace=space, select=select, policyTypes=types, ingress=rules)
            key = (obj["metadata"]["namespace"], obj["metadata"]["name"])
            if chance.random() < 0.3 and key in objects:
                del objects[key]
                remove = world.index.set_policy if "podSelector" in obj["spec"] else world.index.set_pod
                remove(Name(*key), None)
            else:
                objects[key] = obj
                put(world.index, obj)
            if chance.random() < 0.6:
                world.plan()
        fresh = World()
        for obj in objects.values():
            put(fresh.index, obj)
        now = {
            way: {pod: names for pod, names in by_pod.items() if " " not in pod.name}
            for way, by_pod in isolated(world.plan()).items()
        }  # those that have left are isolated, too
        assert now == isolated(fresh.plan()), seed


def test_pods_that_come_and_go_elsewhere_change_nothing_here() -> None:
    """Pods that need not run, which anybody makes by the hundred: a quarter of a second in each sync of each node with
    a hundred pods of a namespace of 20,000 policies, and twice that with both families. New pods of all others wait."""
    world, number = crowded(), 0

    def come() -> Isolated:
        nonlocal number
        number += 1
        put(world.index, pod(f"far{number}", "10.9.9.9", node="node2"))
        return world.plan()

    first = come()
    took, found = least(come, tries=5)
    assert took < 0.03
    assert all(
        found.by_pod[Direction.INGRESS][one] is policies for one, policies in first.by_pod[Direction.INGRESS].items()
    )


def test_pods_that_the_same_policies_isolate_are_worked_out_once() -> None:
    world, number = crowded(), 0

    def write() -> Isolated:
        nonlocal number
        number += 1
        put(world.index, policy("p0", ingress=[{"from": [apps(f"x{number}")]}]))
        return world.plan()

    took, found = least(write, tries=5)
    assert took < 0.05
    assert len({id(policies) for policies in found.by_pod[Direction.INGRESS].values()}) == 1


def test_what_the_pods_of_the_cluster_make_too_expensive_is_not_made_again_in_each_plan() -> None:
    """The rules of such a policy alone had room, so that they were made, and given up again, for each pod that came."""
    world = World()
    for number in range(3000):
        put(world.index, pod(f"o{number}", f"10.1.{number >> 8}.{number & 255}", namespace="b", node="node2"))
    put(world.index, pod("e", "10.0.1.1"))
    blocks = [block(f"11.{number >> 8}.{number & 255}.1/32") for number in range(0, 2000, 2)]
    for number in range(96):  # of a hundred that there is room for
        put(world.index, policy(f"a{number}", ingress=[{"from": blocks}]))
    for number in range(50):
        labels = [{f"k{number}": str(one)} for one in range(60)]
        some = [{"namespaceSelector": {}, "podSelector": {"matchLabels": one}} for one in labels]
        put(world.index, policy(f"p{number}", ingress=[{"from": some}]))
    first = world.plan()
    compiled = dict(world.isolation._spaces["a"].compiled)
    assert {name.name[0] for name in first.closed} == {"p"}
    assert all(compiled[name].cost < MOST - 98_112 for name in first.closed), "it is not their own cost"
    put(world.index, pod("far", "10.9.9.9", node="node2"))
    second = world.plan()
    assert world.isolation._spaces["a"].compiled == compiled
    assert second.by_pod[Direction.INGRESS] == first.by_pod[Direction.INGRESS]
    for number in range(96):
        world.index.set_policy(Name("a", f"a{number}"), None)
    assert len(world.plan().closed) < 50, "there is room for some of them now"
