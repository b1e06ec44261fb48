"""The Go toolchain, the folders that it fills, and its runs."""
