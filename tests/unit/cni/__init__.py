"""Tests of `cni` without a kernel: plans as values, commands against a fake netlink and a fake store."""
