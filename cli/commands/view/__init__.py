"""`nodewright view`: serves the live page, and answers what it asks of the other commands and of the nodes.

The page itself is the package `view`, which knows none of them: `answers.py` implements its ports. Start with
`serve.py`.
"""
