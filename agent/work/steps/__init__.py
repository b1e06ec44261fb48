"""How each step of a plan is walked: `walker.py` knows which module walks which."""
