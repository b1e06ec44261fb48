"""Programs and images out of a published release, used where they match this version instead of building them.

Open model.py first: what a release says of itself. `controlplane/release` makes releases.
"""
