"""Touches the world: packets of the link, files, metrics. Decides nothing."""
