"""What a person sees: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from fedroster.core.compiled import when_compiling

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.text import Text


WIDE = (0, 2, 0, 0)
"""Padding of tables that are mostly text."""


@cache
def out() -> Console:
    """Results.  Where there is no terminal, 80 columns would cut the tables."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


@cache
def err() -> Console:
    """Progress, remarks and errors."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def remark(text: str) -> None:
    """Say something beside the result."""
    err().print(text, markup=False, soft_wrap=True)


def print_json(content: object) -> None:
    """Print the result for scripts."""
    sys.stdout.write(json.dumps(content, indent=2) + "\n")


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    title: str | None = None,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    padding: tuple[int, int, int, int] = (0, 1, 0, 1),
    name_width: int | None = None,
) -> None:
    """Print a table.

    Args:
        columns: Headings.
        rows: Cells; what looks like markup in a text is printed as it is.
        title: Title.
        right: Headings of the columns that are numbers.
        whole: Headings of the columns whose cells are never broken into lines.
        padding: Spaces above, right of, below and left of a cell.
        name_width: Least width of the first column, where the others would take its place on a narrow terminal.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, padding=padding)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=column in whole,
            overflow="fold",
            min_width=name_width if column == columns[0] else None,
        )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    out().print(table)


def say_when_compiling() -> None:
    """Tell the user when kernels are compiled, which may take longer than all that is computed with them."""
    when_compiling(lambda: remark("compiling for this machine; this happens once and takes some seconds"))


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[float], None]]:
    """A progress bar on stderr; it appears when it is told for the first time how much is done.

    Args:
        what: What is being done.
        total: How much there is to do.

    Yields:
        The function that is told how much is done.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    say_when_compiling()
    bar = Progress(*columns, console=err())
    task = bar.add_task(what, total=total)

    def advance(done: float) -> None:
        bar.start()
        bar.update(task, completed=done)

    try:
        yield advance
    finally:
        if bar.live.is_started:
            bar.stop()


@contextmanager
def download_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar of bytes, on stderr; yields the function that is told how many came, and of how many."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err()) as bar:
        task = bar.add_task(what, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


@contextmanager
def interrupted(words: Callable[[], str]) -> Iterator[None]:
    """Say what is kept if the user interrupts what happens inside.

    Args:
        words: Gives the words, when it has happened.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(words()) from None


def kept_runs(folder: Path) -> str:
    """What a study keeps in its folder when it is interrupted."""
    files = list(folder.rglob("trials/*.npz"))
    finished = sum(not file.name.endswith(".checkpoint.npz") for file in files)
    if not files:
        return "no run was finished, and nothing is kept"
    begun = f" and {len(files) - finished} unfinished" if len(files) > finished else ""
    return f"{finished} finished{begun} runs are kept in {folder}; run the same command to go on"
