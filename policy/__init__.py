"""Network policies: watches NetworkPolicies, Pods and Namespaces and keeps the kernel's rules for this node's pods.

ClusterNetworkPolicies, too, and the Nodes that these select. Upstream has only the APIs
(staging/src/k8s.io/api/networking/v1, kubernetes-sigs/network-policy-api); the SIG's own implementation is
kubernetes-sigs/kube-network-policies. Start with `plan/layout.py`, which says how a policy becomes sets and chains,
then `plan/cluster_layout.py`, `plan/program.py`, `family_table.py` and `enforcer.py`.
"""
