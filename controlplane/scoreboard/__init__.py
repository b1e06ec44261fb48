"""The public scoreboard: all of upstream's e2e and e2e_node suites, with our kubelet and proxy and with upstream's.

Every spec of both suites is in one part or behind one rule that says why it cannot run here (plan/rules.py,
plan/groups.py). The parts run one after the other, each on clusters of its own, [Conformance] first, and what fails is
run again, alone. What came of each spec is kept (plan/results.py), so that hours of work can be interrupted, and go on
elsewhere. Upstream's counterpart are the jobs of its testgrid. Open plan/partition.py first.
"""
