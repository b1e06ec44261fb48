"""Netlink without pyroute2: the framing, requests to netfilter, the packets that it reports, connection tracking.

Upstream's counterpart is vishvananda/netlink; nftables itself is `nodelib/nft`. Start with `framing.py` and
`netfilter.py`; `listener.py` receives what `nflog.py` and `nfqueue.py` read. `pyroute2_parts.py` imports what is used
of pyroute2 elsewhere.
"""
