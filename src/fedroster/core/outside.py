"""Text that others chose, such as ids, names, reasons and paths, made safe for terminals, messages, logs and tables."""

from __future__ import annotations

import re
from typing import Any

_FORMULA = re.compile(r"[=+\-@\t\r](?!\d+(\.\d+)?(e[+-]?\d+)?$)")


def plain(text: str, keep: str = "") -> str:
    """A text as a terminal, a message or a line of a log may show it.

    What a reader does not see, or a terminal obeys, is written as an escape: control characters, ends of lines, marks
    that turn the direction of writing.  So no text can forge a line.

    Args:
        text: The text.
        keep: Such characters that stay nevertheless.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = (each if each.isprintable() or each in keep else each.encode("unicode_escape").decode() for each in text)
    return "".join(shown)


def cell(value: Any) -> Any:
    """A value as a cell of a table for spreadsheets: a text that would be a formula there begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value
