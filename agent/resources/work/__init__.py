"""The kubepods tree, the limits of system cgroups, and the allocations of pods."""
