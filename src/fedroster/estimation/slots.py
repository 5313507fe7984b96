"""Where a key lives in a hash table of open addressing, for state that grows with what was seen."""

from __future__ import annotations

import numpy as np

from fedroster.core.compiled import njit

EMPTY = -1
FIRST_SLOTS = 1024
FULLEST = 0.6  # share of the slots that are in use before a table grows


@njit(cache=True, nogil=True, inline="always")
def slot_of(table, key):
    """Slot of a key >= 0, or of the empty slot where it belongs; the table's length is a power of two."""
    word = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    mask = table.shape[0] - 1
    slot = np.int64(word >> np.uint64(20)) & mask
    while table[slot] != key and table[slot] != EMPTY:
        slot = (slot + 1) & mask
    return slot


def slots_for(used: int) -> int:
    """Slots of a table that is half full with ``used`` keys: a power of two, at least 1,024."""
    slots = FIRST_SLOTS
    while used > slots / 2:
        slots *= 2
    return slots
