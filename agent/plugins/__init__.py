"""Kubelet plugins: CSI drivers, DRA drivers and device plugins that register by a socket under plugins_registry.

Upstream: pkg/kubelet/pluginmanager (watcher, reconciler, operation executor).
Start with work.py (PluginManager), which follows plan.py; edge/rpc.py and nodelib/plugin_apis are the gRPC side.
"""
