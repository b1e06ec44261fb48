"""Network policies: watches NetworkPolicies, Pods and Namespaces and keeps the kernel's rules for this node's pods.

Upstream has only the API (staging/src/k8s.io/api/networking/v1); the SIG's own implementation is
kubernetes-sigs/kube-network-policies. Start with `plan/layout.py`, which says how a policy becomes sets and chains,
then `plan/program.py` and `enforcer.py`.
"""
