"""The reference cluster: upstream's control plane built from its Go modules, images, PKI, and what raises and removes it."""
