"""The record: an append-only log of every decision, and what it lets one ask.

:class:`Record` writes it as a federation runs, :class:`Log` reads it.
"""

from fedroster.folder.events import BegunLine
from fedroster.folder.lines import OPEN
from fedroster.folder.record import Record
from fedroster.record.log import Log, LoggedRound
from fedroster.record.verify import Verified, verify

__all__ = ["OPEN", "BegunLine", "Log", "LoggedRound", "Record", "Verified", "verify"]
