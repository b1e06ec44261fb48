"""The volumes of pods: fetch what they are made from, mount, refresh and unmount them, CSI volumes included.

Upstream: pkg/kubelet/volumemanager, pkg/volume, and pkg/kubelet/{configmap,secret,token,podcertificate}. Start with
work/manager.py (VolumeManager); plan/volumes.py decides what each volume is, edge/setup.py makes it on disk,
work/csi_volumes.py asks CSI drivers, and work/local_volumes.py mounts the devices of local PersistentVolumes.
"""
