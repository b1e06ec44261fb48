"""Kubelet plugins: CSI drivers, DRA drivers and device plugins that register by a socket under plugins_registry.

Upstream: pkg/kubelet/pluginmanager (watcher, reconciler, operation executor). Also here: gRPC without generated code,
as all plugin APIs of the agent use it.
Start with work.py (PluginManager), which follows plan.py; edge/wire.py and edge/rpc.py are the gRPC side.
"""
