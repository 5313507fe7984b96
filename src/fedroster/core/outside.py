"""Text that others chose, such as ids, names, reasons and paths, made safe for terminals, messages, logs and tables."""

from __future__ import annotations

import re
import shlex
from typing import Any

_FORMULA = re.compile(r"(\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n])(?!\d+(\.\d+)?(e[+-]?\d+)?$)")
_MARKUP = re.compile(r"[\\\[\]|]|^[`~:](?=[`~:]{2})")


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


def marked(text: str) -> str:
    """A text as a line of Markdown, or a cell of its tables, shows it: no tag, link, column or fence begins in it."""
    return _MARKUP.sub(r"\\\g<0>", plain(text.replace("\n", " ").strip()).replace("<", "&lt;"))


def pasteable(command: str) -> str:
    """A command line that a file has, as a shell may be given it: one command of ours, or a remark of the shell."""
    try:
        words = shlex.split(command[:10_000])  # its time grows with the square of the length
    except ValueError:  # a quotation without an end
        words = []
    return plain(shlex.join(words) if words[:1] == ["fedroster"] else f"# {command}" if command else "")


def cell(value: Any) -> Any:
    """A value as a cell of a table for spreadsheets: a text that would be a formula there begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value
