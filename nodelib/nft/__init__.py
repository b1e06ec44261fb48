"""nftables: elements as the kernel encodes them, and the edge that sends whole transactions."""
