"""`nodewright up`: raises a cluster on this machine, or repairs whatever is missing from one.

It puts together what the folders below offer: doctor's preflight, binaries, images, cluster and kubeadm. The closest
upstream counterparts are `kind create cluster` and hack/local-up-cluster.sh. Open work.py first; plan.py decides which
options go together and which of them a living cluster can still take.
"""
