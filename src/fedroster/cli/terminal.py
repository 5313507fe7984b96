"""What a person sees: results on stdout, everything else on stderr."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from fedroster.core.checks import counted
from fedroster.core.outside import plain

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.text import Text

    from fedroster.lab.compare.result import Comparison
    from fedroster.lab.compare.tables import Measure


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


def say(text: str, *, keep: str = "") -> None:
    """Say a result in a sentence, or in lines if ends of lines are to ``keep``."""
    out().print(plain(text, keep), markup=False, soft_wrap=True)


def remark(text: str) -> None:
    """Say something beside the result."""
    err().print(plain(text), markup=False, soft_wrap=True)


def print_json(content: object) -> None:
    """Print the result for scripts.  JSON has neither infinity nor NaN: null.  Foreign values are text."""
    sys.stdout.write(json.dumps(_finite(content), indent=2, default=str) + "\n")


def _finite(content: Any) -> Any:
    if dataclasses.is_dataclass(content) and not isinstance(content, type):
        content = dataclasses.asdict(content)
    if isinstance(content, Mapping):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    title: str | None = None,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    padding: tuple[int, int, int, int] = (0, 1, 0, 1),
) -> None:
    """Print a table; what looks like markup in a text is printed as it is.

    Columns of numbers stand ``right``; cells of those that are ``whole`` are never broken into lines.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title and Text(plain(title)), title_justify="left", box=None, padding=padding)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=column in whole,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(plain(cell)) for cell in row))
    out().print(table)


def print_summary(found: Comparison, measures: Sequence[Measure]) -> None:
    """Print means with their intervals, in further tables where the terminal is narrow, and what the columns mean."""
    from rich.text import Text

    from fedroster.lab.compare.tables import summary_table
    from fedroster.lab.statistics import FEWEST

    table = summary_table(found.summary(), measures)
    heading, *headings = table.columns
    longest = max(len(part) for row in table.rows for part in row[0].replace(",", ", ").split())
    wide = max(longest, min(max(len(row[0]) for row in table.rows), 26))
    room = out().width - wide - 4
    blocks: list[list[int]] = [[]]
    left = room
    for column, words in enumerate(headings, start=1):
        width = max(len(words), *(len(row[column]) for row in table.rows)) + 2
        if width > left and blocks[-1]:
            blocks.append([])
            left = room
        blocks[-1].append(column)
        left -= width
    for number, block in enumerate(blocks):
        shown = [table.columns[column] for column in block]
        room = wide if len(blocks) > 1 else wide + left
        names = (textwrap.wrap(plain(row[0]).replace(",", ", "), room) for row in table.rows)
        cells = (Text("\n".join(lines).replace(", ", ",")) for lines in names)
        rows: list[list[str | Text]] = [
            [name, *(row[column] for column in block)] for name, row in zip(cells, table.rows, strict=True)
        ]
        print_table([heading, *shown], rows, title=None if number else str(found), right=shown, whole=shown)
    for measure in measures:
        if measure.about:
            out().print(f"{measure.heading.partition(',')[0]}: {measure.about}", markup=False)
    if found.blind:
        say(found.blind)
    if (seeds := len(found.settings.seeds)) > 1:
        few = f"; fewer than {FEWEST} can decide nothing" * (seeds < FEWEST)
        out().print(f"±: half of a 95 % interval over {seeds} seeds{few}", markup=False)


@cache
def say_when_compiling() -> None:
    """Tell the user when kernels are compiled, which may take longer than the computation itself."""
    from fedroster.core.compiled import when_compiling

    when_compiling(lambda: remark("compiling for this machine; this happens once and takes some seconds"))


@contextmanager
def progress(
    what: str, *, of_bytes: bool = False, kept: Callable[[], str] | None = None
) -> Iterator[Callable[..., None]]:
    """A bar on stderr, of runs or of bytes, which appears with the first progress.

    What is yielded takes what is done, the total where it is known, and what is done now, in words.  If the user
    interrupts what happens inside, ``kept`` says what is kept.
    """
    from rich import progress as bars

    say_when_compiling()
    counts = (bars.DownloadColumn(), bars.TransferSpeedColumn()) if of_bytes else (bars.MofNCompleteColumn(),)
    begin = (bars.TextColumn("{task.description}", markup=False), bars.BarColumn(bar_width=20))
    end = (bars.TimeElapsedColumn(), bars.TextColumn("left"), bars.TimeRemainingColumn())
    bar = bars.Progress(*begin, *counts, *end, console=err())
    task = bar.add_task(what, total=None)
    begun, is_said = time.monotonic(), of_bytes

    def advance(done: float, total: float | None = None, words: str = "") -> None:
        nonlocal is_said
        bar.start()
        bar.update(task, completed=done, total=total, description=f"{what} {words}".rstrip())
        spent_s = time.monotonic() - begun
        if not is_said and total and done >= total / 100 and spent_s > 15.0:  # a first run may compile
            is_said, left_s = True, spent_s * (total - done) / done
            if left_s > 150.0:
                remark(f"this takes about {counted(round(left_s / 60.0), 'minute')} more")

    try:
        yield advance
    except (KeyboardInterrupt, SystemError) as error:
        if kept is None or not was_interrupted(error):
            raise
        raise KeyboardInterrupt(kept()) from None
    finally:
        if bar.live.is_started:
            bar.stop()


def was_interrupted(error: BaseException) -> bool:
    """Whether the user interrupted; what interrupts compiled code comes out of it as a SystemError."""
    return isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt)


def kept_runs(folder: Path) -> str:
    """What a study keeps in its folder when it is interrupted."""
    files = list(folder.rglob("trials/*.npz"))
    finished = sum(not file.name.endswith(".checkpoint.npz") for file in files)
    if not files:
        return "no run was finished, and nothing is kept"
    begun = f" and {len(files) - finished} unfinished" if len(files) > finished else ""
    return f"{finished} finished{begun} runs are kept in {folder}; run the same command to continue"
