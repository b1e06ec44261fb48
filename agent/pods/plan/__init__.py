"""Pure decisions: plan_pod() (pod.py) picks the next steps, pod_status() (status.py) computes the status."""
