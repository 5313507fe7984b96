"""Entry point of the command line; says what to install when the extra is missing."""

from __future__ import annotations

import codecs
import os
import sys

_PLAIN = {"±": "+-", "×": "x", "–": "-", "—": "-", "…": "...", "━": "-"}  # noqa: RUF001


def _plain(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def _mend_streams() -> None:
    """Have an output of each kind, though it was closed, and one that takes every character, though it is ASCII."""
    codecs.register_error("fedroster", _plain)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        elif hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors="fedroster")


def main() -> None:
    """Run the command line."""
    _mend_streams()
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
