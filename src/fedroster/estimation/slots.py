"""The place of a key in a hash table with open addressing, for state that grows with the data."""

from __future__ import annotations

import numpy as np

from fedroster.core.arrays import IntArray
from fedroster.core.compiled import njit

EMPTY = -1
FIRST_SLOTS = 1024
_LARGEST_KEY = 2**62
FULLEST = 0.6  # share of the slots that are in use before a table grows


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def places(table, keys):
    """Slot of each key, which is put where it belongs if it is not there yet."""
    place = np.empty(keys.shape[0], np.int64)
    for row in range(keys.shape[0]):
        place[row] = slot_of(table, keys[row])
        table[place[row]] = keys[row]
    return place


def roomier(key: IntArray, keys_each: int, tag: IntArray, wanted: int) -> tuple[IntArray, IntArray, IntArray]:
    """A table with room for ``wanted`` more keys, without those of clients that were forgotten.

    Returns:
        The table; the slots of the old one that are kept; their slots in the new one.
    """
    used = np.flatnonzero(key != EMPTY)
    used = used[np.isin(key[used] // keys_each, tag)]
    table = np.full(slots_for(used.shape[0] + wanted), EMPTY, np.int64)
    return table, used, places(table, key[used])


def table_flaw(key: IntArray, num_used: int) -> str:
    """Why a file's table is impossible; empty if it is possible: every search then ends, and finds its key."""
    slots = key.shape[0]
    if slots < FIRST_SLOTS or slots & (slots - 1):
        return f"a table has {slots} slots; expected a power of two from {FIRST_SLOTS} on"
    used = np.flatnonzero(key != EMPTY)
    if used.shape[0] != num_used or num_used > FULLEST * slots:
        return f"{used.shape[0]} slots of {slots} are in use, and {num_used} are counted"
    if not (places(key.copy(), key[used]) == used).all():
        return "a key is not where it would be looked for"
    return ""


def tag_flaw(tag: IntArray, num_tags: int, key: IntArray, keys_each: int) -> str:
    """Why the tags of a file are impossible; empty if they are possible."""
    given = tag[tag >= 0]
    if given.max(initial=-1) >= num_tags or np.unique(given).shape[0] != given.shape[0]:
        return "a tag was never given, or is given twice"
    if num_tags > _LARGEST_KEY // keys_each or key.max(initial=EMPTY) >= num_tags * keys_each:
        return "a key is of a tag that was never given"
    return ""
