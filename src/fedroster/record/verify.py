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
from fedroster.folder.events import BegunLine, NotKeptError
from fedroster.folder.lines import DecidedLine, UndoneLine
from fedroster.record.following import DIGITS, Difference, Following


@dataclass(frozen=True, slots=True)
class Start:
    """A state that the log goes on from, and that the line before has not led to.

    Attributes:
        line: Number of the line that says so.
        after: Last round of the lines before; 0 for none.
        round: Last round of the state.
    """

    line: int
    after: int
    round: int

    def __str__(self) -> str:
        """What it means."""
        first, last = sorted((self.after, self.round))
        rounds = f"round {last}" if last == first + 1 else f"rounds {first + 1} to {last}"
        how = "lines are missing"
        if self.round > self.after:
            how = f"{rounds} {'is' if last == first + 1 else 'are'} missing"
        elif self.round < self.after:
            how = f"{rounds} {'does' if last == first + 1 else 'do'} not count any more"
        state = f"a copy of a state at round {self.round}, which is not verified"
        return f"{how}: from line {self.line} it goes on from {state}"


@dataclass(slots=True)
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
        allowed: Whether these are allowed.
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

    policy: str = ""
    seed: int = 0
    num_files: int = 0
    num_lines: int = 0
    num_rounds: int = 0
    first_round: int = 0
    last_round: int = 0
    num_not_begun: int = 0
    undone: tuple[int, ...] = ()
    starts: tuple[Start, ...] = ()
    allowed: bool = False
    head: str = ""
    torn: int = 0
    flaw: str = ""
    anchor: int | None = None
    num_decided: int = 0
    num_unknown: int = 0
    unverified: str = ""
    differences: tuple[Difference, ...] = ()
    same_code: bool = True

    @property
    def largest(self) -> float:
        """Largest relative difference of numbers; infinite where more than numbers differ, 0 without differences."""
        return max((each.by for each in self.differences), default=0.0)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found: chain and anchor are there, no state is unverified, decisions are the policy's.

        Last digits of numbers may differ (``largest`` is at most ``DIGITS``), as they do on another processor.
        """
        is_led_to = self.allowed or not self.starts
        return not self.flaw and self.largest <= DIGITS and self.anchor != 0 and is_led_to


def _read(folder: Path, head: str | None, found: Verified) -> Iterator[Line]:
    """The lines of a log, and what all of them say of themselves."""
    for line in lines_of(folder):
        said = line.content
        found.head, found.num_lines = line.digest, line.number
        if line.digest == head:
            found.anchor = line.number
        if isinstance(said, BegunLine):
            found.same_code &= said.code == code()
            found.policy, found.seed = said.policy, said.settings.seed
        elif isinstance(said, UndoneLine):
            found.undone += (said.of,)
        yield line


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
    by = None if policy is None else Following(policy, Path(folder), verify=True)
    found = Verified(
        num_files=len(files),
        allowed=allow_gaps,
        anchor=None if head is None else 0,
        unverified="" if by is not None else why_not,
    )
    last = 0
    try:
        for line in standing(_read(Path(folder), head, found)):
            said, is_led_to = line.content, False
            if by is not None and not found.unverified:
                try:
                    is_led_to = by.take(line)
                except NotKeptError as error:
                    found.unverified = str(error)
            if isinstance(said, BegunLine) and said.start is not None:
                goes_on = bool(found.unverified) and said.round == last > 0
                if not is_led_to and not goes_on:
                    found.starts += (Start(line.number, last, said.round),)
                    last = said.round
            elif isinstance(said, DecidedLine):
                found.num_rounds += 1
                found.num_not_begun += bool(said.not_begun)
                found.first_round = found.first_round or said.round
                found.last_round = last = said.round
        found.torn = torn_bytes(Path(folder))
    except LogFileError as error:
        found.flaw = str(error)
    if by is not None:
        found.num_decided, found.num_unknown = by.num_decided, by.num_unknown
        found.differences = tuple(by.differences)
        if not found.unverified and by.num_unknown and not by.num_decided:
            found.unverified = "the log has no contexts of clients outside the cohorts"
    return found
