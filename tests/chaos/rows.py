"""What a harness finds: one row of the table, and the first cases that were not as they should be."""

from __future__ import annotations

import resource
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from fedroster.core.errors import FedrosterError

_SHOWN = 6  # cases of each row that a report keeps


@dataclass
class Row:
    """One line of the table.

    Attributes:
        what: What was tried.
        tries: How often.
        lost: What was acknowledged, or promised, and is not there.
        wrong: Results that are not what they should be.
        raw: Errors that are none of fedroster's own, where one of these is due.
        peak_mib: Most memory of a process, MiB.
        slowest_s: Longest try, seconds.
        note: Figures that have no column; or why nothing was tried.
        cases: The first cases that were lost, wrong or raw.
        size: Share of the full number of tries that was asked for.
    """

    what: str
    tries: int = 0
    lost: int = 0
    wrong: int = 0
    raw: int = 0
    peak_mib: float = 0.0
    slowest_s: float = 0.0
    note: str = ""
    cases: list[str] = field(default_factory=list)
    size: float = 1.0

    @property
    def is_bad(self) -> bool:
        return bool(self.lost or self.wrong or self.raw)

    def _case(self, text: str) -> None:
        if len(self.cases) < _SHOWN and text not in self.cases:
            self.cases.append(text[:300])

    def lose(self, count: int, case: str) -> None:
        self.lost += count
        if count:
            self._case(f"lost: {case}")

    def fault(self, case: str) -> None:
        self.wrong += 1
        self._case(f"wrong: {case}")

    def error(self, error: BaseException, case: str) -> None:
        """Count an error that is none of ours."""
        self.raw += 1
        where = traceback.extract_tb(error.__traceback__)[-1:]
        place = f" at {where[0].filename.rpartition('/')[2]}:{where[0].lineno}" if where else ""
        self._case(f"raw: {type(error).__name__}: {str(error)[:80]}{place}, {case}")

    @contextmanager
    def attempt(self, case: str) -> Iterator[None]:
        """One try: it is timed, an error of ours is an answer, and any other is raw."""
        self.tries += 1
        begin = time.perf_counter()
        try:
            yield
        except FedrosterError:
            pass
        except Exception as error:
            self.error(error, case)
        finally:
            self.slowest_s = max(self.slowest_s, time.perf_counter() - begin)

    def timed(self, begin: float) -> None:
        self.slowest_s = max(self.slowest_s, time.perf_counter() - begin)

    def done(self) -> Row:
        """Take the memory of this process and of its children."""
        usage = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        self.peak_mib = max(self.peak_mib, max(usage) / (2**20 if sys.platform == "darwin" else 2**10))
        return self

    def asdict(self) -> dict[str, object]:
        return asdict(self)
