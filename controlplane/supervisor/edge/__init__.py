"""Supervisors from outside, and what /proc says about their programs."""
