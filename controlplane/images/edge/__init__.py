"""Archives, packages, compilers, containerd roots and a registry: whatever reads or writes image data."""
