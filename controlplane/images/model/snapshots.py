"""Where containerd's overlayfs snapshotter has its files, below containerd's root (plugins/snapshots/overlay)."""

from __future__ import annotations

SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
FILES = "fs"  # of a snapshot's folder: what overlay file systems are made of
WORK = "work"  # beside it: scratch of an overlay, empty once the snapshot is committed
