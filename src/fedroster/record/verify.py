"""Whether a log is what it says: an unbroken chain, and decisions that are those of its policy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedroster.core.errors import LogFileError
from fedroster.core.protocols import AnyPolicy
from fedroster.core.sources import code
from fedroster.folder.chain import Line, files_of, lines_of, torn_bytes
from fedroster.folder.events import NotKeptError
from fedroster.folder.lines import check_begun, standing
from fedroster.record.following import Difference, Following


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found in a log.

    Attributes:
        num_files: Files that were read.
        num_lines: Lines whose digest the next line holds, or that is the last.
        num_rounds: Decisions among them.
        head: Digest of the last line.
        torn: Bytes of a last line that is not whole.
        flaw: What is wrong with the chain, or cannot be booked; empty if nothing is.
        anchor: Number of the line that has the digest that was asked for; 0 if none has, None if none was asked for.
        num_decided: Decisions that the policy made again.
        num_unknown: Decisions that it could not make, without contexts.
        unverified: Why no decision was made again; empty if they were.
        differences: Where the policy decides otherwise, or a line differs from what a record would write.
        same_code: Whether the log was written by this code of fedroster.
    """

    num_files: int
    num_lines: int
    num_rounds: int
    head: str
    torn: int
    flaw: str
    anchor: int | None
    num_decided: int
    num_unknown: int
    unverified: str
    differences: tuple[Difference, ...]
    same_code: bool

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found: the chain is whole, the anchor there, and every decision the policy's."""
        return not self.flaw and not self.differences and self.anchor != 0


def verify(folder: str | os.PathLike[str], policy: AnyPolicy | None, *, head: str | None = None) -> Verified:
    """Follow the chain of a log, and let its policy decide again.

    The chain shows that no line before the last was changed, removed or moved.  It cannot show that lines at the end
    were cut off, or that the whole log was rewritten by a person who can compute digests: only a digest that was kept
    elsewhere can (``head``).

    Args:
        folder: Folder of the log.
        policy: The policy that the log names; None to follow the chain alone.
        head: Digest of a last line that was kept elsewhere; None for none.

    Raises:
        FileNotFoundError: If there is no log.
    """
    files = files_of(Path(folder))
    if not files:
        raise FileNotFoundError(f"no log in {os.fspath(folder)!r}")
    found, flaw, num_lines, num_rounds, torn, anchor = "", "", 0, 0, 0, 0
    by = None if policy is None else Following(policy, Path(folder), verify=True)
    unverified, same_code = "" if policy is not None else "no policy was named", True

    def chained() -> Iterator[Line]:
        nonlocal found, num_lines, num_rounds, anchor, same_code
        for line in lines_of(Path(folder)):
            found, num_lines = line.digest, line.number
            anchor = line.number if head is not None and line.digest == head else anchor
            num_rounds += line.kind == "decided"
            if line.number == 1:
                check_begun(line.content)
            if line.kind == "begun":
                same_code &= line.content.get("code") == code()
            yield line

    try:
        for line in standing(chained()):
            if by is None or unverified:
                continue
            try:
                by.take(line)
            except NotKeptError as error:
                unverified = str(error)
        torn = torn_bytes(Path(folder))
    except LogFileError as error:
        flaw = str(error)
    if not unverified and by is not None and by.num_unknown and not by.num_decided:
        unverified = "the log has no contexts of clients outside the cohorts"
    return Verified(
        num_files=len(files),
        num_lines=num_lines,
        num_rounds=num_rounds,
        head=found,
        torn=torn,
        flaw=flaw,
        anchor=None if head is None else anchor,
        num_decided=0 if by is None else by.num_decided,
        num_unknown=0 if by is None else by.num_unknown,
        unverified=unverified,
        differences=() if by is None else tuple(by.differences),
        same_code=same_code,
    )
