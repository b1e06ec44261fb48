"""`nodewright doctor`: checks this machine and the pod networks of its nodes, and says how to fix what is wrong.

`up` runs the same checks and stops at the fatal ones. Upstream's counterpart: the preflight checks of kubeadm
(cmd/kubeadm/app/preflight of k8s.io/kubernetes). Open plan/preflight.py first; model.py holds the facts it judges.
"""
