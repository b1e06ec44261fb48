"""The node's own client and serving certificates: bootstrap, requests to the cluster's signers, rotation.

Upstream: pkg/kubelet/certificate, client-go util/certificate. Open plan.py for the rules, then work/rotation.py.
agent/build/credentials.py starts both. The certificates that pods ask for are in agent/volumes.
"""
