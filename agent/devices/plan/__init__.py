"""Pure decisions: which devices and claims a container gets, the checkpoints, the podresources answers."""
