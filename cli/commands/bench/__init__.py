"""`nodewright bench`: one program for each thing that is measured; how values are taken is in `cli/bench`.

`programs.py` chooses the program by the command's argument and imports only that one. `publish.py` prints tables and
writes docs/benchmarks.md. Upstream's counterpart is clusterloader2 in kubernetes/perf-tests. Start with `pods.py`.
"""
