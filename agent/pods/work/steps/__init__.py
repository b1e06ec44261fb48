"""How each step of a plan is done; walker.py finds the one for a step."""
