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
