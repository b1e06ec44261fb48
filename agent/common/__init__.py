"""What several rooms share: pods as values, readers of their specs, and the few services that every room is given.

Here belong values and pure readers with more than one user room (model, plan), and Events, checkpoints, observables,
inotify and metrics (work, edge). What only one room uses belongs to that room, and so does its Protocol; what knows a
capability (images, volumes, ...) never belongs here. Upstream: pkg/kubelet/types, pkg/kubelet/util,
k8s.io/component-helpers, client-go tools/record. Open model/pods.py first.
"""
