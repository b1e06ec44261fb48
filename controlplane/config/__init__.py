"""What a cluster is to be, as one file says it: `up --config FILE`, `--print-config` and `--print-schema`.

The closest counterparts are kind's Cluster (kind.x-k8s.io/v1alpha4) and k3d's Simple (k3d.io/v1alpha5). Open
plan/document.py first: the one declaration from which the reader, the JSON Schema and the printed file follow.
"""
