"""Decides: which Service has which address, which node announces it, what is answered on the link. Pure.

What depends on time gets the time as an argument.
"""
