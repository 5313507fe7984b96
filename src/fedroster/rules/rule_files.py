"""Rules from a file that may change while a federation runs."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from pathlib import Path
from typing import TypeAlias

from fedroster.core.checks import path_of, shown
from fedroster.core.errors import ConfigurationError, FedrosterError
from fedroster.rules.rules import Rules

GivenRules: TypeAlias = Rules | str | os.PathLike[str] | None
"""Rules, or the path of a TOML file of them, or none."""

_log = logging.getLogger("fedroster.rules")
_SETTLED_S = 2.0  # a file that was changed later than this ago may change again within one tick of its clock


def given_rules(given: GivenRules) -> tuple[Rules, RuleFile | None]:
    """The rules that are given, and the file that they are read from.

    Raises:
        ConfigurationError: If they are none, or the file cannot be read.
    """
    if given is None:
        return Rules(), None
    if isinstance(given, Rules):
        return given, None
    if not isinstance(given, str | os.PathLike):
        raise ConfigurationError(f"rules are {shown(given)}; expected Rules, the path of a TOML file, or None")
    file = RuleFile(given)
    return file.read(), file


class RuleFile:
    """A TOML file of rules, read again when it changes.

    Attributes:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Begin without having read it."""
        self.path = os.fspath(Path(path_of(path)).absolute())
        self._stamp: tuple[int, int, int] | None = None
        self._digest = ""
        self._is_missing = False

    def read(self) -> Rules:
        """Read the file.

        Raises:
            ConfigurationError: If it cannot be read, or a rule is malformed; names the file.
        """
        try:
            content = self._content()
            self._digest = hashlib.sha256(content).hexdigest()
            return Rules.from_toml(content)
        except (OSError, FedrosterError) as error:
            raise ConfigurationError(f"{self.path!r} holds no rules that can be used: {shown(error, str)}") from error

    def _content(self) -> bytes:
        with Path(self.path).open("rb") as file:
            found = os.fstat(file.fileno())
            self._stamp = found.st_mtime_ns, found.st_size, found.st_ino
            if time.time() - found.st_mtime < _SETTLED_S:
                self._stamp = None  # look again next time
            return file.read()

    def changed(self) -> Rules | None:
        """The rules, if the file has changed since the last look; a broken file is logged once.

        A file that is gone or broken changes nothing: its earlier rules stay in force.
        """
        try:
            found = Path(self.path).stat()
            if (found.st_mtime_ns, found.st_size, found.st_ino) == self._stamp:
                return None
            content = self._content()
        except OSError as error:
            if not self._is_missing:
                self.refuse(str(error))
            self._is_missing = True
            return None
        self._is_missing = False
        digest = hashlib.sha256(content).hexdigest()
        if digest == self._digest:
            return None
        self._digest = digest
        try:
            return Rules.from_toml(content)
        except FedrosterError as error:
            self.refuse(shown(error, str))
            return None

    def refuse(self, reason: str) -> None:
        """Log that the file's present content does not come into force."""
        _log.warning("the rules in %r are not used, and the earlier ones stay in force: %s", self.path, reason)

    def accept(self, rules: Rules) -> None:
        """Log which rules are in force from now on."""
        _log.info("the rules in %r have changed; in force now: %s", self.path, rules.as_table())
