"""What a pod is made with: fetched (`gathering.py`), made on disk (`pod.py`, `containers.py`), told to the runtime."""
