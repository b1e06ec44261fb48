"""Tests of `proxy` without a kernel: plans as values, backends against interpreting fakes, traced packets."""
