"""The command `completion`: prints the script that completes commands and options in a shell."""

import click
from click.shell_completion import ShellComplete, get_completion_class

from retention_assets.cli.group import cli, examples

_EXAMPLES = examples(
    'eval "$(retention completion bash)"',
    "retention completion zsh > ~/.zfunc/_retention",
    "retention completion fish > ~/.config/fish/completions/retention.fish",
)
_VARIABLE = "_RETENTION_COMPLETE"  # the variable by which the script asks this command for completions


@cli.command(short_help="Print the completion script of a shell.", epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes the commands and options of `retention` in SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None
    # The base method: that of bash starts a bash to learn its version.
    click.echo(ShellComplete.source(kind(cli, {}, "retention", _VARIABLE)))
