"""Clusters that kubeadm raises (`up --kubeadm`), as most users raise theirs.

The configuration follows kubeadm.k8s.io/v1beta4 (cmd/kubeadm of k8s.io/kubernetes). Open work.py first; plan/config.py
holds what kubeadm reads, plan/commands.py the commands and daemons that it finds on a node, balancer.py the
address in front of several API servers, plan/kindnet.py a pod network such as kind's.
"""
