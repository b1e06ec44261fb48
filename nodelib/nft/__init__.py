"""nftables: rules and set elements as the kernel encodes them, and the edge that sends whole transactions.

Upstream's counterpart is sigs.k8s.io/knftables, which runs nft for everything; here elements and rules go over netlink.
Start with `edge.py`; `matches.py` and `actions.py` have the statements of `rules.py`, `wire.py` the encoding of
elements.
"""
