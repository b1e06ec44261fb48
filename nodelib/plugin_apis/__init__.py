"""Plugin APIs that both sides of a socket of this project speak, and gRPC without generated code.

A kubelet calls drivers (agent/plugins, agent/volumes), and the project has a driver of its own (csi). Start with
wire.py, which turns a short description into messages and calls.
"""
