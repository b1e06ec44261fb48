"""The Kubernetes API for daemons: kubeconfig, an asynchronous client of raw JSON, list and watch.

Upstream's counterpart is k8s.io/client-go: `access.py` is its clientcmd, `client.py` its rest client and `reflector.py`
tools/cache/reflector.go. Start with `reflector.py`.
"""
