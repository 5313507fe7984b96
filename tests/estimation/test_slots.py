"""The hash table's slots: every key finds its own, in a table with one empty slot as well."""

import numpy as np
import pytest

from fedroster.estimation.slots import EMPTY, FIRST_SLOTS, slot_of, slots_for


@pytest.mark.parametrize("stride", [1, 7, 1 << 20, 1 << 44])
def test_every_key_finds_its_own_slot(stride):
    """Up to one empty slot, with keys that differ in low bits or in high ones alone."""
    table = np.full(64, EMPTY, np.int64)
    keys = np.arange(63) * stride
    for key in keys:
        slot = slot_of(table, key)
        assert table[slot] == EMPTY
        table[slot] = key
    assert [table[slot_of(table, key)] for key in keys] == keys.tolist()
    assert table[slot_of(table, np.int64(2**61))] == EMPTY


@pytest.mark.parametrize(
    ("used", "slots"),
    [(0, FIRST_SLOTS), (512, FIRST_SLOTS), (513, 2048), (1024, 2048), (1025, 4096), (1_000_000, 2**21)],
)
def test_half_full_at_most(used, slots):
    assert slots_for(used) == slots
