"""Refused packets: what the kernel reports of them (`edge.py`), who and why (`plan/`), and how many (`refused.py`).

Start with `log.py`, which makes drops of them and answers who asks for them (`nodewright drops`, `why`). Nothing here
decides whether a packet passes.
"""
