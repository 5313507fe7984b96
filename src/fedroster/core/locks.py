"""A folder has one writer at a time: a lock that the system gives back when its holder ends, however it ends."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import time
from pathlib import Path

from filelock import FileLock, Timeout

from fedroster.core.checks import shown
from fedroster.core.errors import ConfigurationError, InUseError
from fedroster.core.state import write_text_atomically

_log = logging.getLogger(__name__)

_LOCK_FILE, _HOLDER_FILE = ".lock", ".lock.json"


def refuse_links(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder with a link that leads out of it: a file that is written there would be written elsewhere.

    Raises:
        ConfigurationError: If there is one; names it.
    """
    home = Path(folder).resolve()
    for path in home.rglob("*"):
        if path.is_symlink() and not (end := Path(os.path.realpath(path))).is_relative_to(home):
            raise ConfigurationError(f"{shown(path, str)} is a link to {shown(end, str)}; expected none that leads out")


class FolderLock:
    """Holds a folder until it is released or its process ends.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> lock = FolderLock(folder)
        >>> FolderLock(folder)  # doctest: +ELLIPSIS, +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        fedroster.core.errors.InUseError: '...' is held by process ...
        >>> lock.release()
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Hold a folder.

        Args:
            folder: It must exist and be writable.

        Raises:
            InUseError: If another process holds it; the message names it.
            ConfigurationError: If a link in it leads out of it.
        """
        refuse_links(folder)
        self._folder = Path(folder)
        self._lock = FileLock(self._folder / _LOCK_FILE, timeout=0, mode=0o600, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise InUseError(
                f"{os.fspath(folder)!r} is held by {self._holder()}; two writers would lose each other's rounds: "
                "expected a folder of its own, or end the other first"
            ) from error
        except NotImplementedError:  # a file system without locks
            _log.warning("%r lies on a file system without locks: nothing keeps a second writer out", os.fspath(folder))
            return
        holder = {"process": os.getpid(), "host": socket.gethostname(), "program": sys.argv[0], "since": time.ctime()}
        write_text_atomically(self._folder / _HOLDER_FILE, json.dumps(holder), private=True)

    def _holder(self) -> str:
        try:
            held = json.loads((self._folder / _HOLDER_FILE).read_text(encoding="utf-8"))
            process, host, program, since = (shown(held[each], str) for each in ("process", "host", "program", "since"))
            return f"process {process} on {host} ({program}) since {since}"
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return "another process"

    def release(self) -> None:
        """Release it."""
        self._lock.release()
