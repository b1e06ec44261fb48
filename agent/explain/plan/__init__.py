"""Pure decisions: what a pod waits for, why its containers ended, what a user can do, and what resources it costs."""
