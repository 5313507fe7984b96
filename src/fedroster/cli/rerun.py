"""``fedroster rerun``: a study played again from its settings file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from fedroster import __version__
from fedroster.cli.command import app, command
from fedroster.cli.terminal import remark
from fedroster.core.errors import InvalidInputError


@command()
def rerun(
    study: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of a comparison or a reproduction, or its settings.json.")
    ],
    *,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Another folder. If not given, that of the settings file if it holds finished runs, else that of the "
            "command.",
        ),
    ] = None,
    engine: Annotated[str | None, typer.Option(help="local or ray; that of the first run if not given.")] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="HOST:PORT of a Ray cluster, or auto; that of the first run if not given.")
    ] = None,
) -> None:
    """Run the command of a study again; finished runs are taken from its folder."""
    file = study / "settings.json" if study.is_dir() else study
    arguments = _kept_arguments(file)
    folder = folder or _finished_runs(file, arguments)
    if engine is not None:
        arguments = _without(arguments, "--ray-address")
    for option, value in (("--out", folder), ("--engine", engine), ("--ray-address", ray_address)):
        if value is not None:
            arguments = [*_without(arguments, option), option, str(value)]
    sys.argv = ["fedroster", *arguments]
    try:
        app()
    except SystemExit as stop:
        if stop.code == 2 and (words := _of_another_version(file)):
            remark(words)
        raise


def _finished_runs(file: Path, arguments: Sequence[str]) -> Path | None:
    """The folder of the file, if it holds the finished runs and the command, run from here, would write elsewhere."""
    here = file.parent.resolve()
    named = [second for first, second in pairwise(arguments) if first == "--out"]
    named += [part.removeprefix("--out=") for part in arguments if part.startswith("--out=")]
    if any(Path(name).resolve() == here for name in named) or not any(here.rglob("trials/*.npz")):
        return None
    return here


def _without(arguments: Sequence[str], option: str) -> list[str]:
    """Arguments without an option and its value."""
    kept: list[str] = []
    for place, part in enumerate(arguments):
        is_value = place > 0 and arguments[place - 1] == option
        if not (part == option or is_value or part.startswith(f"{option}=")):
            kept.append(part)
    return kept


def _kept_arguments(file: Path) -> list[str]:
    from fedroster.study.store import read_json

    command = read_json(file).get("command")
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # a quotation without end
        words = []
    if words[:1] != ["fedroster"] or words[1:2] not in (["compare"], ["reproduce"]):
        raise InvalidInputError(f"{file} names no command of fedroster compare or reproduce, but {command!r}")
    return words[1:]


def _of_another_version(file: Path) -> str:
    """What to do with a file whose command cannot be run, where other code wrote it; empty where this one did."""
    from fedroster.core.sources import code
    from fedroster.study.store import read_json

    settings = read_json(file)
    made_by = settings | settings.get("machine", {})  # a comparison's, and a reproduction's
    version, its_code = made_by.get("fedroster", "of unknown version"), made_by.get("code", "unknown")
    if (version, its_code) == (__version__, code()):
        return ""
    command = shlex.join(["fedroster", *_kept_arguments(file)])
    return (
        f"{file} was written by fedroster {version} (code {its_code}); this is {__version__} (code {code()}), and "
        "names have moved since (CHANGELOG.md). Give the command with the names of fedroster list and fedroster "
        f"reproduce --help, or run it with that version: {command}"
    )
