"""The command line: for people, and with ``--json`` for scripts.

Each command has a file.  Results go to stdout, everything else to stderr.  Exit codes: 0 done, 1 failed, 2 wrong usage,
3 the time that was given is up.
"""

from importlib import import_module

from fedroster.cli.command import app

__all__ = ["app", "main"]

_COMMANDS = "choose list simulate compare plan replay reproduce cite data log"

for _name in _COMMANDS.split():
    import_module(f"fedroster.cli.{_name}")  # registers its command; --help names them in this order


def main() -> None:
    """Run the command line."""
    app()
