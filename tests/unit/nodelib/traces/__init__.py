"""Tests of nodelib/traces."""
