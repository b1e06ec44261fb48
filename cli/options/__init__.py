"""The commands as users see them: names, options and help; what a command does is in `cli/commands`.

`application.py` makes the typer application and `--version`, `shared.py` has the options that many commands take,
`choices.py` the values that options accept, `conversion.py` and `plain_help.py` what they change of typer. Each of the
others declares one group of commands. Upstream's counterpart is k8s.io/kubernetes/cmd/*/app/options. Start with
`cluster.py`, at `up`.
"""
