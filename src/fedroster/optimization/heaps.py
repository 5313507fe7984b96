"""The k greatest of many keys, in compiled code: heaps whose least key stands first, and quickselect.

A heap is an array of keys and, beside it, one of their owners; with None for it Numba compiles a version without.  The
small ones are inlined where they are used: as calls they cost FLOOR's choice up to a tenth of its time.
"""

from __future__ import annotations

from fedroster.core.compiled import njit


@njit(cache=True, nogil=True, inline="always")
def push(keys, owners, size, key, owner):
    """Add a key and its owner to a heap of ``size`` keys."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if keys[parent] <= key:
            break
        keys[i] = keys[parent]
        if owners is not None:
            owners[i] = owners[parent]
        i = parent
    keys[i] = key
    if owners is not None:
        owners[i] = owner


@njit(cache=True, nogil=True, inline="always")
def replace_least(keys, owners, size, key, owner):
    """Put a key and its owner in the place of the least of a heap of ``size`` >= 1 keys."""
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[i] = keys[child]
        if owners is not None:
            owners[i] = owners[child]
        i = child
    keys[i] = key
    if owners is not None:
        owners[i] = owner


@njit(cache=True, nogil=True, inline="always")
def offer(keys, owners, filled, size, key, owner):
    """Keep the ``size`` >= 1 greatest keys in a heap of ``filled``; returns how many it then has."""
    if filled < size:
        push(keys, owners, filled, key, owner)
        filled += 1
    elif key > keys[0]:
        replace_least(keys, owners, size, key, owner)
    return filled


@njit(cache=True, nogil=True, inline="always")
def _key(keys, rows, i):
    return keys[i] if rows is None else keys[rows[i]]


@njit(cache=True, nogil=True, inline="always")
def _swap(keys, rows, i, j):
    if rows is None:
        keys[i], keys[j] = keys[j], keys[i]
    else:
        rows[i], rows[j] = rows[j], rows[i]


@njit(cache=True, nogil=True)
def greatest_first(keys, rows, begin, end, size):
    """Three-way quickselect in place: afterwards the ``size`` greatest stand first, in any order.

    Args:
        keys: The keys.
        rows: Rows of ``keys``, looked at and written to; or None, for ``keys`` itself.
        begin: The first.
        end: The one behind the last.
        size: How many, 0 to ``end - begin``.
    """
    low, high = begin, end
    target = begin + size
    while high - low > 1:
        a, b, c = _key(keys, rows, low), _key(keys, rows, (low + high) >> 1), _key(keys, rows, high - 1)
        pivot = max(min(a, b), min(max(a, b), c))
        larger, smaller, i = low, high, low
        while i < smaller:
            key = _key(keys, rows, i)
            if key > pivot:
                _swap(keys, rows, i, larger)
                larger += 1
                i += 1
            elif key < pivot:
                smaller -= 1
                _swap(keys, rows, i, smaller)
            else:
                i += 1
        if target <= larger:
            high = larger
        elif target <= smaller:
            break
        else:
            low = smaller
