"""Pure rules, one file per part of a configuration; container.py and sandbox.py put the parts together."""
