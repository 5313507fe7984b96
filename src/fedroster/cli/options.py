"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

import math
import re
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedroster.core.checks import shown
from fedroster.core.errors import ConfigurationError

if TYPE_CHECKING:
    from fedroster.lab.trials.run import Engine
    from fedroster.lab.trials.trial import Conditions


def complete(where: str) -> Callable[[str], list[str]]:
    """What a shell offers for a name of a registry, such as ``catalogue.POLICIES``, plug-ins included."""

    def names(incomplete: str) -> list[str]:
        module, _, kind = where.rpartition(".")
        points = entry_points(group=f"fedroster.{kind.lower()}")
        known = [*getattr(import_module(f"fedroster.{module}"), kind), *(point.name for point in points)]
        begun, comma, last = incomplete.rpartition(",")
        return [f"{begun}{comma}{name}" for name in known if name.startswith(last.casefold())]

    return names


SeedsOption = Annotated[str, typer.Option("--seeds", help="Seeds, such as 0-4 or 1,3,5.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a parameter of the scenario; may be repeated."),
]
PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME[:P=V,...]",
        help="Policy; may be repeated.",
        autocompletion=complete("catalogue.POLICIES"),
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder of the data sets; FEDROSTER_DATA if not given.")
]

_MOST_SEEDS = 100_000


@dataclass(frozen=True)
class Workplace:
    """Where runs are played."""

    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at the same time; one for each core if not given.")
    ] = None
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="local for processes on this machine, or ray for a cluster.")
    ] = "local"
    ray_address: Annotated[
        str | None,
        typer.Option(help="With --engine ray: HOST:PORT of a cluster, or auto. If not given, Ray starts a new one."),
    ] = None

    def open(self) -> Engine:
        """The engine that these options name."""
        from fedroster.lab.trials.processes import in_processes

        if self.engine == "ray":
            from fedroster.lab.trials.ray_engine import RayEngine

            return RayEngine(self.ray_address)
        if self.ray_address is not None:
            raise ConfigurationError(
                f"--ray-address is {self.ray_address!r} and --engine {self.engine!r}; expected --engine ray with it"
            )
        return in_processes


@dataclass(frozen=True)
class Training:
    """Under which conditions models are trained."""

    data_dir: DataDirOption = None
    device: Annotated[
        Literal["cpu", "cuda", "auto"], typer.Option(help="cpu, cuda, or auto for a GPU if there is one.")
    ] = "cpu"
    minutes: Annotated[
        float | None,
        typer.Option(min=0.0, help="Stop after this time and keep what is done; run the same command to continue."),
    ] = None

    def conditions(self) -> Conditions:
        """The conditions that these options name; the time runs from now on."""
        from fedroster.lab.trials.trial import Conditions

        stop_at = math.inf if self.minutes is None else time.time() + 60.0 * self.minutes
        return Conditions(stop_at=stop_at, device=self.device, data_dir=self.data_dir)


def read_range(text: str) -> tuple[int, int] | None:
    """First and last number of ``0-4`` or ``3``; None for any other text, and where the first is above the last."""
    found = re.fullmatch(r"(\d{1,4000})(?:-(\d{1,4000}))?", text)  # Python reads no longer ones
    ends = found and (int(found[1]), int(found[2] or found[1]))
    return ends if ends and ends[0] <= ends[1] else None


def read_seeds(text: str) -> list[int]:
    """Read ``0-4``, ``1,3`` or a mixture."""
    seeds: list[int] = []
    for part in text.split(","):  # checked before it is spelt out: a range may be too long for the memory
        if (ends := read_range(part.strip())) is None:
            raise ConfigurationError(
                f"seeds are {shown(text)}; expected something like 0-4 or 1,3,5: the lower seed first"
            )
        first, last = ends
        if len(seeds) + last - first >= _MOST_SEEDS:
            raise ConfigurationError(f"seeds are {text!r}, more than {_MOST_SEEDS:,}; expected fewer")
        seeds.extend(range(first, last + 1))
    if len(set(seeds)) != len(seeds):
        raise ConfigurationError(f"seeds are {text!r}; expected each seed once")
    return seeds


def check_folder(folder: Path) -> None:
    """Refuse an ``--out`` that is a file, or lies under one, before anything is computed."""
    for place in (folder, *folder.parents):
        if place.exists():
            if not place.is_dir():
                where = "which is a file" if place == folder else f"and {place} is a file"
                raise ConfigurationError(f"--out is {folder}, {where}; expected a folder")
            return


def this_command() -> str:
    """The command line as the user wrote it."""
    return shlex.join(["fedroster", *sys.argv[1:]])
