"""The k greatest of many keys, in compiled code: heaps whose least key stands first, and quickselect.

Keys may stand alone, or carry what they belong to; with None for it Numba compiles a version without.  The small ones
are inlined where they are used: as calls into another module they cost FLOOR's choice up to a tenth of its time.
"""

from __future__ import annotations

from fedroster.core.compiled import njit


@njit(cache=True, nogil=True, inline="always")
def push(keys, owners, size, key, owner):
    """Add a key to a heap.

    Args:
        keys: The heap, shape (at least size + 1,); written to.
        owners: Whom each key belongs to, likewise; or None.
        size: Keys in the heap.
        key: The new key.
        owner: Whom it belongs to.
    """
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
    """Put a key in the place of the least of a heap.

    Args:
        keys: The heap, shape (at least size,); written to.
        owners: Whom each key belongs to, likewise; or None.
        size: Keys in the heap, >= 1.
        key: The new key.
        owner: Whom it belongs to.
    """
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
        rows: Rows of ``keys``, ``begin`` to ``end`` of them looked at and written to; or None, for ``keys`` itself.
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
