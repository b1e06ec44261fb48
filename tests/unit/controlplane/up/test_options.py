"""Which options of `up` go together."""

from __future__ import annotations

import pytest

from controlplane.cluster.model import Options
from controlplane.up.plan import options_problem


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
    assert (options_problem(options) == "") is good


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
    assert (options_problem(options, asked) == "") is good
