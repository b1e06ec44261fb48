"""Kinds of clusters and nodes that specs run on, the first group that takes a spec. The last one of each suite takes
what is left.
"""

from __future__ import annotations

from controlplane.scoreboard.model import Group, Match, Program

_E2E, _NODE = Program.E2E, Program.NODE
_GATES = {"AllAlpha": True, "AllBeta": True}
_STORAGE = {"storage": True}

GROUPS: tuple[Group, ...] = (
    Group(
        "e2e-gates",
        "features and versions of APIs that are off by default, with all gates on",
        Match(
            ("Feature:OffByDefault", "Alpha", "Feature:StorageVersionAPI"),
            r"\[DRA\].* with v1beta\d API ",
            program=_E2E,
        ),
        gates=_GATES,
        api_server={"runtime-config": "api/all=true"},
    ),
    Group(
        "e2e-policies",
        "network policies",
        Match(("Feature:NetworkPolicy",), program=_E2E),
        seconds=25.0,
        only_ours="upstream's kubelet and kube-proxy enforce none; that is what a pod network of others is for",
    ),
    Group(
        "e2e-dual",
        "clusters with IPv4 and IPv6",
        Match(("Feature:IPv6DualStack",), program=_E2E),
        options={"ip_family": "dual"},
        seconds=10.0,
        only_ours="upstream's kubelet brings no pod network, and the one that it gets here has IPv4 only",
    ),
    Group(
        "e2e-disruptive",
        "disturb the cluster, one by one",
        Match(("Disruptive",), program=_E2E),
        procs=1,
        minutes=120,
        seconds=60.0,
        options=_STORAGE,
    ),
    Group(
        "e2e-serial",
        "need the cluster for themselves, one by one",
        Match(("Serial",), program=_E2E),
        procs=1,
        minutes=120,
        seconds=45.0,
        options=_STORAGE,
    ),
    Group("e2e-network", "Services, DNS, pod network", Match(("sig-network",), program=_E2E), minutes=90, seconds=12.0),
    Group(
        "e2e-storage",
        "volumes; the cluster has a default StorageClass",
        Match(("sig-storage",), program=_E2E),
        minutes=90,
        options=_STORAGE,
    ),
    Group(
        "e2e-node",
        "kubelet, as far as it needs a cluster",
        Match(("sig-node",), program=_E2E),
        minutes=90,
        seconds=4.0,
        # As in upstream's own test clusters; a spec waits until so many ended pods are left of a thousand.
        controller_manager={"terminated-pod-gc-threshold": "100"},
    ),
    Group("e2e-rest", "API machinery, apps, kubectl, scheduling and others", Match(program=_E2E)),
    Group(
        "node-standalone",
        "a kubelet without an API server",
        Match(("Feature:StandaloneMode",), program=_NODE),
        procs=2,
        seconds=25.0,
        setup="standalone",
    ),
    Group(
        "node-runtime-errors",
        "calls of the runtime fail",
        Match(("Feature:CriProxy",), program=_NODE),
        procs=1,  # the suite's proxy is in its first process
        seconds=55.0,
        setup="cri-proxy",
    ),
    Group(
        "node-eviction",
        "memory, disk, inodes and processes run out, images are collected",
        Match(
            ("Feature:Eviction", "Feature:LocalStorageCapacityIsolation*", "Feature:GarbageCollect"),
            r"Eviction|ImageGC|GarbageCollect",
            program=_NODE,
        ),
        procs=1,
        minutes=240,
        seconds=300.0,
        alone=True,
    ),
    Group(
        "node-devices",
        "device plugins and DRA drivers, also over restarts, and the CPU, memory and topology managers",
        Match(
            ("Feature:Device*", "Feature:DynamicResourceAllocation", "Feature:*Manager", "Feature:PodResources*"),
            "Device Plugin|Device Manager|CPU Manager|Memory Manager|Topology Manager|POD Resources",
            program=_NODE,
        ),
        minutes=120,
        seconds=50.0,
    ),
    Group(
        "node-serial",
        "log rotation, cgroups, restarts and whatever else needs the node for itself",
        Match(("Serial", "Disruptive"), program=_NODE),
        procs=1,
        minutes=180,
        seconds=45.0,
    ),
    Group("node-parallel", "everything else of a kubelet alone", Match(program=_NODE), seconds=6.0),
)
