"""A file of states that are appended one after the other: the last whole one counts."""

import errno
import io
import os

import numpy as np
import pytest

from fedroster.core import state
from fedroster.core.errors import StateFileError
from fedroster.core.state import cut_torn, load_arrays, save_arrays, stamp_of

KIND = "test"


def append(file, number):
    save_arrays(file, {"x": np.full(50, number)}, {"number": number}, kind=KIND, stamp=f"writer {number}", append=True)


def number_of(file):
    arrays, header = load_arrays(file, kind=KIND)
    assert (arrays["x"] == header["number"]).all()
    return header["number"]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "s.npz"


def test_the_last_state_is_read_and_numpy_reads_it_too(file):
    for number in range(5):
        append(file, number)
        assert (number_of(file), stamp_of(file), cut_torn(file)) == (number, f"writer {number}", 0)
    assert np.load(file)["x"][0] == 4


def test_wherever_an_append_stops_the_state_before_is_there(file):
    append(file, 1)
    whole = file.read_bytes()
    append(file, 2)
    both = file.read_bytes()
    for end in range(len(whole) + 1, len(both)):
        file.write_bytes(both[:end])
        assert cut_torn(file) == end - len(whole)
        assert number_of(file) == 1
        assert file.read_bytes() == whole
    append(file, 3)
    assert number_of(file) == 3


def test_damage_to_the_last_state_is_refused_and_not_taken_for_a_torn_one(file):
    append(file, 1)
    half = file.stat().st_size
    append(file, 2)
    content = bytearray(file.read_bytes())
    content[half + 200] ^= 1
    file.write_bytes(content)
    assert cut_torn(file) == 0
    with pytest.raises(StateFileError, match="damaged"):
        load_arrays(file, kind=KIND)


def test_a_file_does_not_grow_for_ever(file, monkeypatch):
    append(file, 0)
    one = file.stat().st_size
    monkeypatch.setattr(state, "_MOST_APPENDED", 3 * one + 10)
    sizes = []
    for number in range(1, 7):
        append(file, number)
        assert number_of(file) == number
        sizes.append(round(file.stat().st_size / one))
    assert sizes == [2, 3, 1, 2, 3, 1]


def test_a_full_disk_leaves_the_file_as_it_was(file, monkeypatch):
    append(file, 1)
    write, calls = os.write, []

    def full(number, content):
        calls.append(len(content))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(number, content[:100])  # a part still fits

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space") as raised:
        append(file, 2)
    assert raised.value.filename == str(file)
    assert (number_of(file), cut_torn(file)) == (1, 0)


def buffers_of(error):
    """What the frames that an error passed still hold."""
    frame = error.__traceback__
    while frame is not None:
        yield from (value for value in frame.tb_frame.f_locals.values() if isinstance(value, io.BytesIO))
        frame = frame.tb_next


def test_a_failed_save_leaves_no_view_of_its_buffer(file, monkeypatch):
    """An error that lives on with such a view crashes Python 3.12.1 when both are collected."""
    append(file, 1)

    def full(number, content):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space left") as found:
        append(file, 2)
    (buffer,) = buffers_of(found.value)
    buffer.close()  # BufferError if there is a view
    assert number_of(file) == 1
