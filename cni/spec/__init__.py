"""The CNI specification as values: arguments and configuration of a call, its result and its errors. Pure.

Follows https://www.cni.dev/docs/spec/ (1.1.0), and 0.3.1 to 1.0.0 where their results differ. Upstream's counterpart is
github.com/containernetworking/cni, pkg/types and pkg/skel. Start with `configuration.py`.
"""
