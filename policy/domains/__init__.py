"""Domain names in rules: DNS answers to pods are held (`edge.py`), read (`plan/answers.py`) and remembered
(`plan/learnt.py`), their addresses are put into the kernel's sets, and then the answer goes on (`work.py`).

Start with `work.py`. Which answers are held is a matter of rules: `policy/plan/cluster_layout.py`.
"""
