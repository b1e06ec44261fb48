"""OCI image archives without Docker: one short recipe for each image, deterministic and cached.

The recipes follow test/images and test/utils/image/manifest.go of k8s.io/kubernetes. Open plan/recipes.py first, its
layers are in plan/layers.py; work.py builds what is missing, edge/seed.py makes containerd roots that already hold the
images, edge/registry.py serves archives to nodes that must pull. docs/images.md is generated from the recipes.
"""
