"""Checkpoints of pfl-research that a kill cannot leave half written."""

from __future__ import annotations

import shutil
from pathlib import Path

from pfl.common_types import Checkpointer, Saveable
from pfl.exception import CheckpointNotFoundError

from fedroster.core.errors import ConfigurationError
from fedroster.core.state import sync_file, sync_folder, write_text_atomically

_WHOLE = "checkpoint"
"""A file that names the one of two folders whose parts are whole."""


class RunCheckpoint(Saveable, Checkpointer):
    """The parts of a run, saved as one: a checkpoint has all of them, of the same iteration.

    pfl's ``RestoreTrainingCallback`` writes one part over the other's old file, so a kill in between leaves a model of
    one iteration beside an algorithm of another.  Give it this in place of the parts:
    ``RestoreTrainingCallback([RunCheckpoint(model, algorithm, users)], "checkpoints")``.

    An algorithm counts an iteration after the callback, so the parts are written when it begins the next one: what goes
    on has as many iterations as an uninterrupted run.  When the last one is over, that is how it began.
    """

    def __init__(self, *parts: Saveable) -> None:
        """Name what belongs together: model, algorithm, ``SelectedDataset`` and whatever else has a state."""
        self._parts = parts
        self._waits = False
        self._due = ""

    def set_checkpointer(self, checkpointer: Checkpointer) -> None:
        """Let the algorithm say when an iteration begins."""
        self._waits = True
        for part in self._parts:
            part.set_checkpointer(self)

    def invoke_save(self, saveable: Saveable) -> None:
        """Write what is due: the algorithm begins an iteration."""
        if self._due:
            self._write(Path(self._due))
        self._due = ""

    def save(self, dir_path: str) -> None:
        """Save all parts in a folder when the next iteration begins; at once where no algorithm says that it does."""
        self._due = dir_path
        if not self._waits:
            self.invoke_save(self)

    def _write(self, home: Path) -> None:
        whole = home / _WHOLE
        folder = home / ("b" if whole.exists() and whole.read_text() == "a" else "a")
        shutil.rmtree(folder, ignore_errors=True)
        for number, part in enumerate(self._parts):
            (folder / str(number)).mkdir(parents=True)
            part.save(str(folder / str(number)))
        for path in [*folder.rglob("*"), folder]:
            if path.is_file():
                with path.open("rb") as file:
                    sync_file(file.fileno())
            else:
                sync_folder(path)
        write_text_atomically(whole, folder.name)

    def load(self, dir_path: str) -> None:
        """Go on with what was saved last in a folder.

        Raises:
            CheckpointNotFoundError: If there is nothing (pfl's own error: a first run begins then).
            ConfigurationError: If it has another number of parts.
        """
        whole = Path(dir_path) / _WHOLE
        if not whole.exists():
            raise CheckpointNotFoundError(dir_path)
        folder = whole.with_name(whole.read_text())
        saved = len(list(folder.iterdir()))
        if saved != len(self._parts):
            raise ConfigurationError(f"{dir_path!r} has {saved} parts; expected {len(self._parts)}, or another folder")
        for number, part in enumerate(self._parts):
            part.load(str(folder / str(number)))
