"""Commands that write something for other programs or people: completion for shells, the answer to a bug report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.errors import reported
from cli.options.application import app, command
from cli.options.choices import Shell
from cli.options.plain_help import PlainCommand, PlainGroup
from cli.options.shared import DEFAULT, Name, Plain

export = typer.Typer(cls=PlainGroup, no_args_is_help=True, rich_markup_mode="markdown")
app.add_typer(export, name="export", rich_help_panel="Diagnosis", help="Write what a bug report needs into a folder.")


@export.command("logs", cls=PlainCommand)
def logs(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Where to write it: a folder that is empty or does not exist yet."),
    ],
    name: Name = DEFAULT,
    plain: Plain = False,
) -> None:
    """Write one folder that answers a bug report: versions, logs, events, objects, rules, routes, what `why` says.

    It works while the API server or a node is down: what cannot be read is a file that says why. Secrets, tokens and
    private keys are left out; look through the folder all the same before you publish it.

    Examples:

    * `./nodewright export logs /tmp/report`

    * `./nodewright export logs /tmp/report --name lab && tar -C /tmp -czf report.tgz report`
    """
    with reported():
        from cli.commands import export_logs as work

        work.run(name, folder, plain=plain)


@command("Diagnosis")
def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the completion for a shell, which then completes commands, options, clusters and nodes.

    Examples:

    * `source <(./nodewright completion bash)`

    * `./nodewright completion zsh > "${fpath[1]}/_nodewright"`

    * `./nodewright completion fish > ~/.config/fish/completions/nodewright.fish`
    """
    from cli.commands.completion import script

    print(script(shell))
