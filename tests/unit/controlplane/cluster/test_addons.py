"""Addons of `up`: what each applies and where, and that a cluster keeps those that it has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan import addons
from controlplane.cluster.plan.manifests import path_of
from controlplane.images.plan.known import BY_NAME, CONFORMANCE, DEMO
from controlplane.up.request import Request
from controlplane.up.settle import settle
from nodelib.errors import Invalid

CLUSTER = Cluster("lab", "10.89.3.0/24", Options(addons="ingress, metrics,ingress"))


def test_names() -> None:
    assert CLUSTER.options.addon_names == ("ingress", "metrics")


def test_an_unknown_one_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Invalid, match=r"mesh.*ingress, metrics"):
        settle(Request("no-such", Options(addons="ingress,mesh"), frozenset({"addons"})))


@pytest.mark.parametrize("addon", addons.TABLE.values(), ids=addons.TABLE)
def test_every_addon_can_be_applied_and_found(addon: addons.Addon) -> None:
    objects = addon.objects()
    paths = [path_of(one) for one in objects]
    assert len(set(paths)) == len(paths)
    key, _, value = addon.selector.partition("=")
    (workload,) = [one for one in objects if one["kind"] == "Deployment"]
    assert workload["spec"]["template"]["metadata"]["labels"][key] == value
    assert workload["metadata"]["namespace"] == addon.namespace
    containers = workload["spec"]["template"]["spec"]["containers"]
    assert {one["image"] for one in containers} <= set(addon.images) <= set(BY_NAME)
    assert not set(addon.images) & {*DEMO, *CONFORMANCE}, "a cluster without the add-on does not build its image"
    assert addon.hint(CLUSTER)


def test_options_survive_their_file_and_an_older_one() -> None:
    assert Cluster.from_json(CLUSTER.to_json()) == CLUSTER
    old = replace(CLUSTER, options=Options()).to_json()
    for name in ("addons", "ip_family", "routed"):
        del old["options"][name]
    assert Cluster.from_json(old).options == Options()
