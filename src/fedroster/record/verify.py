"""Whether a log is what it says: an unbroken chain without holes, and decisions that are those of its policy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedroster.core.errors import LogFileError
from fedroster.core.protocols import AnyPolicy
from fedroster.core.sources import code
from fedroster.folder.chain import Line, files_of, lines_of, standing, torn_bytes
from fedroster.folder.events import NotKeptError
from fedroster.folder.lines import BegunLine, DecidedLine, UndoneLine
from fedroster.record.following import DIGITS, Difference, Following


@dataclass(frozen=True, slots=True)
class Start:
    """A state that the log goes on from, and that the line before has not led to.

    Attributes:
        line: Number of the line that says so.
        after: Last round of the lines before; 0 for none.
        round: Last round of the state.
        is_verified: Whether earlier lines have led to it: what came after them was taken back.
    """

    line: int
    after: int
    round: int
    is_verified: bool

    def __str__(self) -> str:
        """What it means."""
        first, last = sorted((self.after, self.round))
        rounds = f"round {last}" if last == first + 1 else f"rounds {first + 1} to {last}"
        how = "lines are missing"
        if self.round > self.after:
            how = f"{rounds} {'is' if last == first + 1 else 'are'} missing"
        elif self.round < self.after:
            how = f"{rounds} {'does' if last == first + 1 else 'do'} not count any more"
        known = "to which earlier lines have led" if self.is_verified else "which is not verified"
        return f"{how}: from line {self.line} it goes on from a copy of a state at round {self.round}, {known}"


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found in a log.

    Attributes:
        policy: The policy that it names; empty if it cannot be read.
        seed: Its seed.
        num_files: Files that were read.
        num_lines: Lines whose digest the next line holds, or that is the last.
        num_rounds: Decisions among them.
        first_round: The first of them; 0 without any.
        last_round: The last of them.
        num_not_begun: Rounds that could not begin.
        undone: Numbers of lines that were taken back.
        starts: States from which the log goes on, and which the line before has not led to.
        allowed: Whether those that are not verified are allowed.
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

    policy: str
    seed: int
    num_files: int
    num_lines: int
    num_rounds: int
    first_round: int
    last_round: int
    num_not_begun: int
    undone: tuple[int, ...]
    starts: tuple[Start, ...]
    allowed: bool
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
    def largest(self) -> float:
        """Largest relative difference of numbers; infinite where more than numbers differ, 0 without differences."""
        return max((each.by for each in self.differences), default=0.0)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found: chain and anchor are there, no state is unverified, decisions are the policy's.

        Last digits of numbers may differ (``largest`` is at most ``DIGITS``), as they do on another processor.
        """
        is_known = self.allowed or all(start.is_verified for start in self.starts)
        return not self.flaw and self.largest <= DIGITS and self.anchor != 0 and is_known


class _Chained:
    """What the lines say of themselves, while they are read."""

    def __init__(self, folder: Path, head: str | None) -> None:
        self._folder, self._head = folder, head
        self.first = self.last = self.num_lines = self.num_rounds = self.num_not_begun = self.seed = 0
        self.digest, self.policy, self.anchor = "", "", 0
        self.undone: list[int] = []
        self.same_code = True

    def __iter__(self) -> Iterator[Line]:
        for line in lines_of(self._folder):
            said = line.content
            self.digest, self.num_lines = line.digest, line.number
            if line.digest == self._head:
                self.anchor = line.number
            if isinstance(said, BegunLine):
                self.same_code &= said.code == code()
                self.policy, self.seed = said.policy, said.settings.seed
            elif isinstance(said, UndoneLine):
                self.undone.append(said.of)
            yield line

    def count(self, line: Line) -> None:
        """Count a line that was not taken back."""
        if isinstance(said := line.content, DecidedLine):
            self.num_rounds += 1
            self.num_not_begun += bool(said.not_begun)
            self.first, self.last = self.first or said.round, said.round


def verify(
    folder: str | os.PathLike[str],
    policy: AnyPolicy | None,
    *,
    head: str | None = None,
    allow_gaps: bool = False,
    why_not: str = "no policy was named",
) -> Verified:
    """Follow the chain of a log, and let its policy decide again.

    The chain shows that no line before the last was changed, removed or moved.  It cannot show that lines at the end
    were cut off, or that the whole log was rewritten by a person who can compute digests: only a digest that was kept
    elsewhere can (``head``).

    Args:
        folder: Folder of the log.
        policy: The policy that the log names; None to follow the chain alone.
        head: Digest of a last line that was kept elsewhere; None for none.
        allow_gaps: Whether a log may have holes, and go on from states to which no line has led.
        why_not: Why there is no policy.

    Raises:
        FileNotFoundError: If there is no log.
    """
    files = files_of(Path(folder))
    if not files:
        raise FileNotFoundError(f"no log in {os.fspath(folder)!r}")
    flaw, torn, unverified = "", 0, "" if policy is not None else why_not
    by = None if policy is None else Following(policy, Path(folder), verify=True)
    chained, starts = _Chained(Path(folder), head), list[Start]()
    try:
        for line in standing(chained):
            said, origin = line.content, "elsewhere"
            if by is not None and not unverified:
                try:
                    origin = by.take(line)
                except NotKeptError as error:
                    unverified = str(error)
            if isinstance(said, BegunLine) and said.start is not None:
                goes_on = bool(unverified) and said.round == chained.last > 0
                if origin != "here" and not goes_on:
                    starts.append(Start(line.number, chained.last, said.round, origin == "before"))
                    chained.last = said.round
            chained.count(line)
        torn = torn_bytes(Path(folder))
    except LogFileError as error:
        flaw = str(error)
    if not unverified and by is not None and by.num_unknown and not by.num_decided:
        unverified = "the log has no contexts of clients outside the cohorts"
    return Verified(
        policy=chained.policy,
        seed=chained.seed,
        num_files=len(files),
        num_lines=chained.num_lines,
        num_rounds=chained.num_rounds,
        first_round=chained.first,
        last_round=chained.last if chained.num_rounds else 0,
        num_not_begun=chained.num_not_begun,
        undone=tuple(chained.undone),
        starts=tuple(starts),
        allowed=allow_gaps,
        head=chained.digest,
        torn=torn,
        flaw=flaw,
        anchor=None if head is None else chained.anchor,
        num_decided=0 if by is None else by.num_decided,
        num_unknown=0 if by is None else by.num_unknown,
        unverified=unverified,
        differences=() if by is None else tuple(by.differences),
        same_code=chained.same_code,
    )
