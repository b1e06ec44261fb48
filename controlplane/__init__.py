"""The reference cluster: upstream's control plane, images, certificates, and what raises and removes it."""
