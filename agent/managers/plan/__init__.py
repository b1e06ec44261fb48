"""Pure decisions of the three policies, their options and their checkpoints."""
