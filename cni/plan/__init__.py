"""Decisions of the pod network. Pure: values in, values out."""
