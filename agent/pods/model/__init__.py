"""Frozen values: the steps of a plan, the facts that it is made from, the timeline of what was done."""
