"""Decisions of the pod network, as pure functions: values in, values out.

Upstream's counterparts are spread over containernetworking/plugins: host-local's allocator (`ipam.py`), portmap
(`hostports.py`, `iptables.py`, `nftables.py`), bridge (`links.py`), and flannel's vxlan backend (`overlay.py`).
Start with `links.py`, what ADD makes.
"""
