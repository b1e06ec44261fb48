"""Workers that walk the plans: pod_workers.py starts them, pod_worker.py is one; status_manager.py sends statuses."""
