"""Makes an ordinary host a Kubernetes node: install and uninstall, join and leave, package, payload.

Upstream's counterparts are the kubelet's Debian package, `kubeadm join` and `kubeadm reset` (cmd/kubeadm of
k8s.io/kubernetes). Open work/join.py first: model.py holds what it is asked for and what came of it, and
work/join_programs.py starts the programs of the node. plan/host_files.py lists what `install` and the package write.
"""
