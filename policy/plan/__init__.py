"""Decides which sets, chains and elements the kernel needs. Pure.

`parse.py` reads API objects, `index.py` knows which pods a selector selects, `program.py` makes the content of a table,
`difference.py` the transaction that leads to it. Start with `layout.py`.
"""
