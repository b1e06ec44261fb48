"""A live page of a cluster: how it is wired, how a pod starts and why it waits, which way a packet takes.

Read-only, served on loopback, with a token in its address; `cli/commands/view/serve.py` starts it. `edge/` watches the
collections that `model.py` names, `plan/` makes rows, waterfalls and texts of their objects, `work/board.py` folds
changes and `work/viewer.py` sends one browser what changed; `static/` only shows what it is sent. What `why`, `service`
and `trace` say comes in by `ports.py`. The closest counterpart is the Kubernetes Dashboard. Start with `work/board.py`.
"""
