"""Why specs cannot run here, the first rule that fits. A rule with `unless` is void where the machine has that ability.

Images come from the harness's own registry, which has those that `up --images conformance` builds (docs/images.md).
What a spec finds out by itself (it skips itself) needs no rule.
"""

from __future__ import annotations

from controlplane.scoreboard.model import Match, Program, Rule

RULES: tuple[Rule, ...] = (
    Rule("needs nodes with Windows", Match(("sig-windows", "Feature:Windows*"))),
    Rule(
        "needs a cloud (Google, Amazon, Azure, OpenStack, vSphere), or SSH to nodes as upstream's scripts set it up",
        Match(("Provider:*", "LocalVolumeType: gce-*")),
    ),
    Rule(
        "needs a GPU or another device that no machine of ours has", Match(("Feature:GPU*", "Feature:SRIOV*"), "SRIOV")
    ),
    Rule("needs nodes that upstream's scripts start on a cloud", Match(("Feature:Flexvolumes", "Feature:Kind"))),
    Rule("known to upstream as flaky", Match(("Flaky",))),
    Rule("needs SCTP in the kernel", Match(("Feature:SCTP*",)), unless="sctp"),
    Rule("needs SELinux", Match(("Feature:SELinux*", "FeatureGate:SELinux*"), "SELinux"), unless="selinux"),
    Rule("needs AppArmor", Match(("Feature:AppArmor",), "AppArmor"), unless="apparmor"),
    Rule("needs swap", Match(("Feature:NodeSwap", "NodeFeature:NodeSwap", "LinuxSwap"), r"\b[Ss]wap\b"), unless="swap"),
    # The 28 specs of MemoryQoS have no such label: they skip themselves. docs/node-suite.md says where they run.
    Rule(
        "needs cgroup v2",
        Match(("Feature:MemoryQoS", "FeatureGate:MemoryQoS", "Feature:KubeletPSI", "FeatureGate:KubeletPSI")),
        unless="cgroup2",
    ),
    Rule(
        "looks at OOM scores below zero, which nobody can set here (no CAP_SYS_RESOURCE)",
        Match(text=r"InPlace Resize .*guaranteed qos .*(?:cpu|mem) restart|oom-score-adj should be -99[89]"),
        unless="oom-scores",
    ),
    Rule("needs a registry of upstream's that asks for a login", Match(("Feature:KubeletCredentialProviders",))),
    Rule("needs the internet", Match(("Feature:Networking-DNS", "Feature:Networking-IPv4", "Feature:Networking-IPv6"))),
    Rule(
        "needs the image of an NFS or iSCSI server, which is not built here",
        Match(
            ("Driver: nfs*", "Driver: iscsi"),
            r"\bNFS\b|GenericPersistentVolume|volume failing to unmount|DynamicProvisioner External",
        ),
    ),
    Rule(
        "needs upstream's hostpath CSI driver, which is not built here (the module proxy does not carry its module)",
        Match(("Driver: csi-hostpath",), r"Volume metrics (PVC|Ephemeral) "),
    ),
    Rule(
        "needs the image resource-consumer, which is not built here",
        Match(("Feature:HPA",)),
    ),
    Rule(
        "needs another image that is not built here (cadvisor, iperf2, perl, ipc-utils, node problem detector,"
        " node performance)",
        Match(
            ("Feature:Networking-Performance", "Feature:NodeProblemDetector", "Feature:*ResourceUsageTracking"),
            "NodeProblemDetector|Node Performance Testing|^.sig-node. Density|Resource-usage|in the host IPC namespace",
        ),
    ),
    Rule(
        "asks the kubelet for its own log (enableSystemLogQuery, off by default) or reads it by SSH: nodes of `up` have"
        " no journal that it would be in",
        Match(text="NodeLogQuery.* should return the kubelet logs"),
    ),
    Rule("needs dns-autoscaler, which the clusters here do not have", Match(("Feature:KubeDNSAutoscaler",))),
    Rule(
        "of a feature that is off by default: the node suite is started without such gates",
        Match(("Feature:OffByDefault", "Alpha"), program=Program.NODE),
    ),
)
