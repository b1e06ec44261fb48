"""What a cluster on one machine is made of: namespaces and links, keys, control plane, nodes, DNS, addons, demo.

model.py holds the Cluster that everything else is derived from; `down` and `status` are here, `up` is in
controlplane/up. Closest upstream: hack/local-up-cluster.sh of k8s.io/kubernetes and sigs.k8s.io/kind. Open model.py
first, then plan/components.py (the command line of every daemon) and plan/wiring.py (the network).
"""
