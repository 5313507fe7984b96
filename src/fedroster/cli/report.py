"""``fedroster report``: the pages of a comparison, made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedroster.cli.command import command
from fedroster.cli.terminal import remark
from fedroster.core.errors import InvalidInputError


@command()
def report(folder: Annotated[Path, typer.Argument(help="Folder that `fedroster compare` wrote.")]) -> None:
    """Make summaries, figures and pages again from a comparison's tables."""
    from fedroster.study.compare.overview import is_of_several, render_all
    from fedroster.study.compare.result import render

    if not folder.is_dir():
        raise InvalidInputError(f"{folder} is not a folder; expected one that `fedroster compare` wrote")
    if is_of_several(folder):
        render_all(folder)
    else:
        render(folder)
    remark(f"report: {folder / 'report.html'}")
