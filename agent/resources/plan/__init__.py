"""Pure decisions: names and limits of cgroups, allocations and their checkpoints, the status of resizes."""
