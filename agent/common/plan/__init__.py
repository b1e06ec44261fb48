"""Pure readers of pod specs, and decisions that several rooms share."""
