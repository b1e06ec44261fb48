"""The nftables mode: one table, a few maps that all Services share, and chains by number of endpoints.

Upstream's counterpart is pkg/proxy/nftables; the layout differs on purpose, and `layout.py` says why: start there.
`ports.py` encodes one Service port as elements of the maps, `sync.py` plans what to add and delete.
"""
