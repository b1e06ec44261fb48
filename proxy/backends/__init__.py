"""One backend per mode: each brings the kernel to a `Desired` state by walking the plans of `proxy.plan.<mode>`.

Upstream's counterpart is the sync loop of pkg/proxy/iptables, pkg/proxy/nftables and, until 1.25, pkg/proxy/userspace.
Start with `base.py`, the interface that the proxier uses, then `nftables.py`. `quarantine.py` wraps any of them.
"""
