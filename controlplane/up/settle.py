"""What a cluster will be, before anything of it is made: its record, of what is asked for and what is there."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace

from controlplane.cluster.edge import state
from controlplane.cluster.edge.roots import state_root
from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan import addresses
from controlplane.cluster.work import host_ports, logins, network
from controlplane.machine.edge.locks import directory_lock
from controlplane.up import plan
from controlplane.up.request import Request
from nodelib.errors import Invalid


def settle(request: Request) -> Cluster:
    """The cluster's record: the existing one with the changes that a living cluster can take, or a new one."""
    state.check_place(request.name)
    known = known_to(request)
    options = request.options
    if known is not None:
        options = plan.merge(request.name, known.options, request.options, request.explicit)
    plan.check_options(options, request.explicit)
    if known is not None:
        cluster = replace(known, options=options, images=request.images or known.images)
        plan.check_ranges_kept(known, replace(request.ranges, nodes=request.subnet))
        _check(cluster, known.options, request)
        if cluster != known:
            state.save(cluster)
        return cluster
    with directory_lock(state_root(), wait=True):
        taken = addresses.parse_networks(network.networks_in_use())
        names = [name for name in state.clusters() if name != request.name]
        others = [other for name in names if (other := state.load_readable(name)) is not None]
        taken += addresses.parse_networks(other.subnet for other in others)
        asked = plan.with_ranges(Cluster(request.name, "", options), request.ranges)
        if request.subnet:
            subnet = addresses.check_subnet(request.subnet, taken, (asked.pod_cidr, asked.service_cidr))
        else:
            subnet = addresses.choose_subnet((*taken, *addresses.parse_networks((asked.pod_cidr, asked.service_cidr))))
        cluster = replace(asked, subnet=subnet, root=state_root(), images=request.images or "demo")
        _check(cluster, None, request)
        state.save(cluster)
    return cluster


def known_to(request: Request) -> Cluster | None:
    """The cluster that this `up` continues. If a build failed before anything was made, what is asked for now counts
    alone; without options it goes on with those of the first time."""
    known = state.load(request.name)
    return None if known is not None and request.explicit and not _is_begun(known) else known


def _is_begun(cluster: Cluster) -> bool:
    """Whether there is more than its record: keys, or what kubeadm's clusters have first, a node's folder."""
    return any(map(os.path.exists, (cluster.pki_dir, *(cluster.node_dir(one.name) for one in cluster.nodes))))


def _check(cluster: Cluster, known: Options | None, request: Request) -> None:
    """Raises Invalid for what a file asks for and this machine does not have, before anything is made."""
    plan.check_overlaps(cluster)
    plan.check_kubelets(cluster)
    plan.check_pool(cluster, request.of_file)
    host_ports.check_free(cluster, known.custom.ports if known else ())
    logins.check_authorities(cluster)
    before = {one.name for one in known.all_members} if known else set()
    for member in cluster.members:
        for mount in member.mounts if member.name not in before else ():
            if not os.path.exists(mount.host_path):
                raise Invalid(
                    "there is no such folder or file on this machine",
                    obj=f"{mount.host_path}, a mount of {member.name}",
                    step="check the nodes (nothing was changed)",
                    action=f"Make it first: `mkdir -p {shlex.quote(mount.host_path)}`.",
                )
    if any(one.username for one in cluster.options.custom.registries):
        logins.read(cluster, request.environment)
