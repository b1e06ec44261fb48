"""The pods of this node over a unix socket: listed, read and watched without the API server.

Upstream: pkg/kubelet/apis/pods (gate PodsAPI, v1alpha1). Pods are the API's objects with the status that the agent has
computed, sent or not, in protobuf. Start with work/answers.py, then work/feed.py.
"""
