"""What events and lines are made of, and the settings of a selector or a simulation, which kept states have, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from fedroster.core.errors import StateFileError

LATEST_S = 1e12
"""No time is longer, seconds."""

Count = Annotated[int, Meta(ge=0, le=2**52)]
Number = Annotated[int, Meta(ge=1, le=2**52)]
Size = Annotated[int, Meta(ge=1, le=2**31)]
Seconds = Annotated[float, Meta(ge=0.0, le=LATEST_S)]
Word = Annotated[str, Meta(max_length=10_000)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Content(Struct, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a line of a log says, after its number, from 1, and the digest of the line before it."""

    line: Number = 0  # until it is written
    before: Digest = ""


class LinePart(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """A part of a line."""


class GroupSaid(LinePart, kw_only=True, frozen=True):
    """A group of rules (:class:`~fedroster.Group`)."""

    clients: list[str]
    least: Count = 0
    most: Count | None = None


class RulesSaid(LinePart, kw_only=True, frozen=True):
    """Rules in force (:meth:`~fedroster.Rules.as_table`), or the digest that stands for rules that name clients."""

    allow: list[str] | None = None
    deny: list[str] | None = None
    tags: dict[str, list[str]] | None = None
    groups: dict[str, GroupSaid] | None = None
    priorities: dict[str, int] | None = None
    least_cohort: Count | None = None
    most_participations: Count | None = None
    most_per_window: Count | None = None
    window: Count | Annotated[str, Meta(max_length=24)] | None = None
    least_separation: Count | None = None
    least_separation_s: Seconds | None = None
    digest: Word = ""

    @property
    def table(self) -> dict[str, Any]:
        """The rules as a table; empty for none, a digest where they are hidden."""
        table: dict[str, Any] = msgspec.to_builtins(self)
        return table

    @property
    def name_clients(self) -> bool:
        """Whether they depend on clients' names."""
        return any(each is not None for each in (self.allow, self.deny, self.groups, self.priorities))


class Settings(LinePart, kw_only=True, frozen=True):
    """What a selector was made with, or follows now; of a simulation, its problem."""

    cohort_size: Size
    seed: int
    patience_rounds: Number = 1
    longest_s: Annotated[float, Meta(gt=0.0)] | Literal["auto"] | None = None
    guarded: bool = False
    longest_absence: Number | None = None
    failures: tuple[bool, Count, Number] = (False, 0, 1)
    rules: RulesSaid = RulesSaid()
    budgets: list[tuple[str, Annotated[float, Meta(ge=0.0)]]] | None = None
    num_clients: Size | None = None
    num_features: Size | None = None
    num_servers: Size | None = None

    @classmethod
    def read(cls, header: Mapping[str, Any]) -> Settings:
        """The settings in the header of a kept state.

        Raises:
            StateFileError: If it has none.
        """
        try:
            return msgspec.convert(header["settings"], cls)
        except msgspec.ValidationError as error:
            raise StateFileError(f"the settings are impossible ({error})") from error
