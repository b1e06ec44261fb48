"""Images: pulls with back-off and progress, the credentials and records of pulls, and image garbage collection.

Upstream: pkg/kubelet/images (image_manager.go, image_gc_manager.go, pullmanager) and pkg/credentialprovider. The
progress of pulls is an addition: it is read from containerd's content service.
Start with work/images.py (ImageManager); work/image_gc.py (ImageCollector) removes what nothing uses.
"""
