"""Checkpoints of pfl-research that a kill cannot leave half written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pfl.common_types import Saveable
from pfl.exception import CheckpointNotFoundError

from fedroster.core.errors import ConfigurationError
from fedroster.core.state import sync_folder

_NAME = "checkpoint-"


class Checkpoint(Saveable):
    """The parts of a run, saved as one: a checkpoint has all of them, of the same iteration.

    pfl's ``RestoreTrainingCallback`` writes one part over the other's old file, so a kill in between leaves a model of
    one iteration beside an algorithm of another.  Give it this in place of the parts:
    ``RestoreTrainingCallback([Checkpoint(model, algorithm, users)], "checkpoints")``.
    """

    def __init__(self, *parts: Saveable) -> None:
        """Name what belongs together.

        Args:
            parts: Model, algorithm, :class:`~fedroster.adapters.pfl.SelectedDataset` and whatever else has a state.
        """
        self._parts = parts

    def save(self, dir_path: str) -> None:
        """Save all parts in a folder of their own, which counts once it is complete; older ones are deleted then.

        Args:
            dir_path: Folder.
        """
        home = Path(dir_path)
        kept = _kept(home)
        unfinished = home / f"{_NAME}unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        for number, part in enumerate(self._parts):
            folder = unfinished / str(number)
            folder.mkdir(parents=True)
            part.save(str(folder))
        for where, _, names in os.walk(unfinished, topdown=False):
            for name in names:
                with (Path(where) / name).open("rb") as file:
                    os.fsync(file.fileno())
            sync_folder(Path(where))
        unfinished.rename(home / f"{_NAME}{max(kept, default=0) + 1}")
        sync_folder(home)
        for old in kept.values():
            shutil.rmtree(old, ignore_errors=True)

    def load(self, dir_path: str) -> None:
        """Go on with the newest complete checkpoint.

        Args:
            dir_path: Folder.

        Raises:
            CheckpointNotFoundError: If there is none (pfl's own error: a first run begins then).
            ConfigurationError: If it has another number of parts.
        """
        kept = _kept(Path(dir_path))
        if not kept:
            raise CheckpointNotFoundError(dir_path)
        newest = kept[max(kept)]
        saved = len(list(newest.iterdir()))
        if saved != len(self._parts):
            raise ConfigurationError(f"{newest} has {saved} parts; expected {len(self._parts)}, or another folder")
        for number, part in enumerate(self._parts):
            part.load(str(newest / str(number)))


def _kept(home: Path) -> dict[int, Path]:
    """Complete checkpoints by number."""
    named = ((path, path.name.removeprefix(_NAME)) for path in home.glob(f"{_NAME}*"))
    return {int(number): path for path, number in named if number.isdecimal()}
