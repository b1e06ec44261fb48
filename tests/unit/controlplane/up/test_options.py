"""Which options of `up` go together, and how that is said of options and of fields of a file."""

from __future__ import annotations

import pytest

from controlplane.cluster.model import Options
from controlplane.up.together import conflicts, field, flag, in_file


@pytest.mark.parametrize(
    ("options", "good"),
    [
        (Options(), True),
        (Options(control_planes=3, nodes=3), False),
        (Options(kubeadm=True, control_planes=3, nodes=3), True),
        (Options(kubeadm=True, control_planes=3, nodes=2), False),
        (Options(kubeadm=True, joined=1, nodes=2), True),
        (Options(kubeadm=True, joined=2, nodes=2), False),
        (Options(kubeadm=True, control_planes=3, nodes=3, routed=True), False),
        (Options(load_balancer=True, load_balancer_pool="10.89.0.200"), True),
        (Options(load_balancer=False, load_balancer_pool="10.89.0.200"), False),
        (Options(load_balancer=True, load_balancer_pool="10.89.0.200", routed=True), False),
        (Options(load_balancer=True, routed=True), True),
    ],
)
def test_options_go_together(options: Options, good: bool) -> None:
    assert (not list(conflicts(options))) is good


@pytest.mark.parametrize(
    ("options", "asked", "good"),
    [
        (Options(kubeadm=True), (), True),  # what is on by default is left out
        (Options(kubeadm=True), ("network_policy",), False),
        (Options(kubeadm=True, network_policy=False), ("network_policy",), True),
        (Options(agent="upstream"), ("network_policy",), False),
        (Options(kubeadm=True), ("load_balancer",), False),
        (Options(routed=True), ("load_balancer",), False),
        (Options(routed=True, load_balancer=False), ("load_balancer",), True),
        (Options(kubeadm=True, storage=True), ("storage",), False),
        (Options(storage=True), ("storage", "network_policy", "load_balancer"), True),
    ],
)
def test_what_somebody_asked_for_is_not_left_out_without_a_word(
    options: Options, asked: tuple[str, ...], good: bool
) -> None:
    assert (not list(conflicts(options, frozenset(asked)))) is good


def test_each_is_told_in_the_words_in_which_it_was_written() -> None:
    (found,) = conflicts(Options(kubeadm=True, storage=True, nodes=2))
    assert found.options == ("storage", "kubeadm")
    assert found.said(flag).endswith("sets up itself: leave out --kubeadm")
    pool = Options(load_balancer_pool="10.89.0.200", routed=True)
    (found,) = conflicts(pool)
    assert found.said(field).startswith("networking.loadBalancerPool needs networking.loadBalancer,")


@pytest.mark.parametrize(
    ("given", "path"),
    [({"storage", "kubeadm"}, ("storage",)), ({"kubeadm"}, ("kubeadm",)), ({"nodes"}, None), (set(), None)],
    ids=["both", "one of them", "another field", "by the command line alone"],
)
def test_a_file_is_to_blame_for_what_it_gives(given: set[str], path: tuple[str, ...] | None) -> None:
    found = list(in_file(conflicts(Options(kubeadm=True, storage=True, nodes=2)), given))
    assert [one.path for one in found] == ([path] if path else [])
