"""Tests of `cli/`: what users type and read, without a cluster."""
