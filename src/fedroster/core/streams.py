"""Random streams by address.

A stream is reached by *where* it is used, never by *how often* a generator was called before.  So every policy meets
the same world, and a resumed run equals an uninterrupted one without any generator state being saved.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedroster.core.checks import shown
from fedroster.core.errors import ConfigurationError

_LARGEST_SEED = 2**4096  # a file's header cannot hold any longer integer


@lru_cache(maxsize=256)
def _role_key(role: str) -> int:
    return int.from_bytes(hashlib.blake2b(role.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Streams:
    """Independent random generators, one for each address ``(seed, role, *where)``.

    Example:
        >>> a = Streams(7).at("environment", 3).random(2)
        >>> b = Streams(7).at("environment", 3).random(2)
        >>> bool((a == b).all())
        True

    Attributes:
        seed: An integer >= 0 of at most 4,096 bits.
    """

    seed: int

    def __post_init__(self) -> None:
        """Check the seed."""
        whole = isinstance(self.seed, int | np.integer) and not isinstance(self.seed, bool)
        if not whole or not 0 <= self.seed < _LARGEST_SEED:
            raise ConfigurationError(f"seed is {shown(self.seed)}; expected an integer >= 0 and below 2^4096")

    def at(self, role: str, *where: int) -> np.random.Generator:
        """Return a fresh generator at the address ``(seed, role, *where)``.

        Args:
            role: What draws, such as ``"environment"`` or ``"policy"``.
            *where: Non-negative integers that say when or for which client, such as the round.
        """
        sequence = np.random.SeedSequence(int(self.seed), spawn_key=(_role_key(role), *where))
        return np.random.Generator(np.random.PCG64(sequence))
