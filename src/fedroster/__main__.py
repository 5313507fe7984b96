"""Entry point of the command line; says what to install when the extra is missing."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from fedroster.cli import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("fedroster"):
            raise
        from fedroster.core.errors import how_to_install

        print(f"fedroster's command line needs {error.name!r}: {how_to_install('study')}", file=sys.stderr)
        raise SystemExit(1) from error
    run()


if __name__ == "__main__":
    main()
