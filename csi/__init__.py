"""A CSI driver for storage of this node: volumes are image files on loop devices.

Upstream's example is kubernetes-csi/csi-driver-host-path. Volumes are asked for by upstream's external-provisioner,
external-resizer and external-snapshotter, and by the kubelet.
Start with `controller.py` and `node.py`, the two services; `edge/store.py` says what is on disk.
"""
