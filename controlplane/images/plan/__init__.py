"""The recipes, and the sets of images that clusters and suites ask for. Pure."""
