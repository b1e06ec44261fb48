"""Network policies for people: the packets that they refused, and who may reach whom.

`sources.py` asks the policy daemons of the nodes; `drops_text.py` and `explain_text.py` say what was found.
"""
