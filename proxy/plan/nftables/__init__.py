"""The nftables mode: one table, a few maps that all Services share, chains by number of endpoints."""
