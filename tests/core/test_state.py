"""State files: what is saved is loaded, what is damaged is refused, and what was there stays."""

import dataclasses
import errno
import json
import os
import pickle
import stat
from dataclasses import dataclass

import numpy as np
import pytest

from fedroster.core import state as state_module
from fedroster.core.errors import StateFileError
from fedroster.core.state import (
    FORMAT,
    FORMAT_VERSION,
    grow,
    is_label_of,
    load_arrays,
    pack,
    per_client,
    reset,
    save_arrays,
    unpack,
    write_atomically,
    write_text_atomically,
)
from fedroster.testing.values import same_arrays


@dataclass(frozen=True, slots=True)
class Inner:
    table: np.ndarray = per_client(axis=0)
    common: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(2))


@dataclass(frozen=True, slots=True)
class Outer:
    inner: Inner
    queue: np.ndarray = per_client()
    grid: np.ndarray = per_client(axis=1)
    count: int = 0
    share: float = 0.0
    on: bool = False


def state_of(num, offset=0.0):
    return Outer(
        inner=Inner(np.arange(2.0 * num).reshape(num, 2) + offset, np.full(2, offset)),
        queue=np.arange(num) + offset,
        grid=np.arange(6 * num, dtype=np.int64).reshape(2, num, 3) + int(offset),
        count=3 + int(offset),
        share=0.25,
        on=True,
    )


def assert_same(left, right):
    assert repr(left) == repr(right)  # arrays and numbers of one type, in dataclasses of one type
    assert same_arrays(pack(left), pack(right))


def test_pack_names_nested_arrays_and_unpack_undoes_it():
    arrays = pack(state_of(4), "p.")
    names = ["inner.table", "inner.common", "queue", "grid", "count", "share", "on"]
    assert list(arrays) == [f"p.{name}" for name in names]
    assert arrays["p.count"].shape == ()
    assert_same(unpack(state_of(4, 9.0), arrays, "p."), state_of(4))


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("queue", None, "the state file holds no 'queue'; it belongs to another policy"),
        ("inner.table", None, r"holds no 'inner\.table'"),
        ("queue", np.zeros(4, np.float32), "'queue' in the state file is float32 with 1 dimensions; expected float64"),
        ("queue", np.zeros((4, 1)), "float64 with 2 dimensions; expected float64 with 1"),
        ("queue", np.zeros(5), r"'queue' in the state file has shape \(5,\); expected \(4,\)"),
        ("grid", np.zeros((2, 5, 3), np.int64), r"has shape \(2, 5, 3\); expected \(2, 4, 3\)"),
        ("count", np.array(1.5), "'count' in the state file is float64"),
    ],
)
def test_foreign_arrays_are_refused(name, array, message):
    arrays = pack(state_of(4))
    if array is None:
        del arrays[name]
    else:
        arrays[name] = array
    with pytest.raises(StateFileError, match=message):
        unpack(state_of(4), arrays)


def test_grow_keeps_what_was_learned():
    grown = grow(state_of(3, 50.0), state_of(5))
    np.testing.assert_array_equal(grown.queue, [50, 51, 52, 3, 4])
    np.testing.assert_array_equal(grown.inner.table[:3], state_of(3, 50.0).inner.table)
    np.testing.assert_array_equal(grown.inner.table[3:], state_of(5).inner.table[3:])
    np.testing.assert_array_equal(grown.grid[:, :3], state_of(3, 50.0).grid)
    np.testing.assert_array_equal(grown.grid[:, 3:], state_of(5).grid[:, 3:])
    np.testing.assert_array_equal(grown.inner.common, [50, 50])
    assert grown.count == 53


def test_reset_forgets_some():
    state = reset(state_of(4, 50.0), state_of(4), np.array([1, 3]))
    np.testing.assert_array_equal(state.queue, [50, 1, 52, 3])
    np.testing.assert_array_equal(state.inner.table[[0, 2]], state_of(4, 50.0).inner.table[[0, 2]])
    np.testing.assert_array_equal(state.inner.table[[1, 3]], state_of(4).inner.table[[1, 3]])
    np.testing.assert_array_equal(state.grid[:, 1], state_of(4).grid[:, 1])
    np.testing.assert_array_equal(state.grid[:, 2], state_of(4, 50.0).grid[:, 2])
    assert state.count == 53


def saved(tmp_path, **arrays):
    file = tmp_path / "state.npz"
    save_arrays(file, arrays or pack(state_of(3)), {"round": 7}, kind="simulation")
    return file


def test_saved_and_loaded(tmp_path):
    file = saved(tmp_path)
    arrays, header = load_arrays(file, kind="simulation")
    assert_same(unpack(state_of(3, 1.0), arrays), state_of(3))
    assert header == {"format": FORMAT, "format_version": FORMAT_VERSION, "kind": "simulation", "round": 7}
    assert list(tmp_path.iterdir()) == [file]


def test_objects_are_not_saved(tmp_path):
    """NumPy would pickle them, and the file could never be loaded."""
    file = saved(tmp_path)
    before = file.read_bytes()
    with pytest.raises(StateFileError, match="'b' is an array of Python objects; expected numbers"):
        save_arrays(file, {"a": np.zeros(2), "b": np.array([{}, None])}, {}, kind="simulation")
    assert file.read_bytes() == before


def test_any_flipped_byte_is_noticed_or_harmless(tmp_path):
    """Every byte, one bit of it and all of it: a StateFileError, or exactly what was saved."""
    file = saved(tmp_path, a=np.arange(4.0), b=np.array(3))
    content = file.read_bytes()
    bits = np.random.default_rng(39).integers(0, 8, len(content))
    refused = 0
    for position in range(len(content)):
        for mask in (1 << int(bits[position]), 0xFF):
            damaged = bytearray(content)
            damaged[position] ^= mask
            file.write_bytes(damaged)
            try:
                arrays, header = load_arrays(file, kind="simulation")
            except StateFileError:
                refused += 1
                continue
            assert header["round"] == 7
            np.testing.assert_array_equal(arrays["a"], np.arange(4.0))
            np.testing.assert_array_equal(arrays["b"], 3)
    assert refused > 1.3 * len(content)  # the rest are dates and padding of the container


def test_truncated_and_other_files_are_refused(tmp_path):
    file = saved(tmp_path, a=np.arange(4.0))
    whole = file.read_bytes()
    others = [b"round,time\n1,2\n", pickle.dumps({"a": np.zeros(3)}), np.random.default_rng(0).bytes(500)]
    for content in (*others, *(whole[:length] for length in range(len(whole)))):
        file.write_bytes(content)
        with pytest.raises(StateFileError, match="is damaged or not a fedroster state file"):
            load_arrays(file, kind="simulation")
    np.savez(file, a=np.zeros(3))
    np.save(tmp_path / "one.npy", np.zeros(3))
    for path in (file, tmp_path / "one.npy", tmp_path):
        with pytest.raises(StateFileError):
            load_arrays(path, kind="simulation")


@pytest.mark.parametrize("header", [b"{}", b"[1]", b"3", b"null", b"\xff\xfe", b"{", b'{"format": "other"}'])
def test_foreign_headers_are_refused(tmp_path, header):
    np.savez(tmp_path / "state.npz", __header__=np.frombuffer(header, np.uint8), a=np.zeros(3))
    with pytest.raises(StateFileError, match=r"state\.npz' is"):
        load_arrays(tmp_path / "state.npz", kind="simulation")


def test_pickled_arrays_are_never_loaded(tmp_path):
    """A state file from a stranger cannot run code."""

    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "bang"),))

    file = tmp_path / "state.npz"
    header = {"format": FORMAT, "format_version": 1, "kind": "simulation", "arrays": ["a"]}
    np.savez(file, __header__=np.frombuffer(json.dumps(header).encode(), np.uint8), a=np.array([Bomb()], dtype=object))
    with pytest.raises(StateFileError, match="holds Python objects"):
        load_arrays(file, kind="simulation")
    assert not (tmp_path / "bang").exists()


def test_other_kinds_and_newer_versions_are_refused(tmp_path, monkeypatch):
    file = saved(tmp_path)
    with pytest.raises(StateFileError, match="is a fedroster-state simulation; expected a fedroster-state selector"):
        load_arrays(file, kind="selector")
    monkeypatch.setattr(state_module, "FORMAT_VERSION", FORMAT_VERSION + 1)
    saved(tmp_path)
    monkeypatch.undo()
    with pytest.raises(StateFileError, match=f"format version {FORMAT_VERSION + 1}; this release reads up to"):
        load_arrays(file, kind="simulation")


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="no state file at"):
        load_arrays(tmp_path / "none.npz", kind="simulation")


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), MemoryError()]
)
@pytest.mark.parametrize("place", ["first byte", "half way", "fsync", "rename"])
def test_the_old_file_survives(tmp_path, monkeypatch, error, place):
    file = saved(tmp_path, a=np.arange(4.0))
    before = file.read_bytes()
    if is_of_the_system := isinstance(error, OSError):
        error.filename = None  # it is the same object in all cases

    def fail(*args, **kwargs):
        raise error

    if place == "first byte":
        monkeypatch.setattr(np.lib.format, "write_array", fail)
    elif place == "half way":

        def half(target, array, **words):
            target.write(before[: len(before) // 2])
            raise error

        monkeypatch.setattr(np.lib.format, "write_array", half)
    elif place == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(type(tmp_path), "replace", fail)
        monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(type(error)) as caught:
        save_arrays(file, {"a": np.arange(9.0)}, {"round": 8}, kind="simulation")
    monkeypatch.undo()
    assert not is_of_the_system or caught.value.filename == str(file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]
    assert load_arrays(file, kind="simulation")[1]["round"] == 7


def test_texts_are_written_as_utf_8_where_there_is_a_folder(tmp_path):
    write_text_atomically(tmp_path / "page.html", "Zürich β\n")
    assert (tmp_path / "page.html").read_bytes() == "Zürich β\n".encode()
    with pytest.raises(FileNotFoundError, match=r"none/page.html"):
        write_text_atomically(tmp_path / "none" / "page.html", "x")


@pytest.mark.parametrize("mask", [0o022, 0o027])
def test_files_have_ordinary_permissions(tmp_path, monkeypatch, mask):
    """A report that only its author may read cannot be served.

    The mask belongs to the whole process: setting it, even to read it, spoils the files of all other threads.
    """
    before = os.umask(mask)
    try:
        monkeypatch.delattr(os, "umask")
        write_text_atomically(tmp_path / "page.html", "x")
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "page.html").stat().st_mode) == 0o666 & ~mask


def test_a_name_that_is_taken(tmp_path, monkeypatch):
    """Of two who write the same file neither writes into the other's."""
    names = iter(["aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr(state_module.secrets, "token_hex", lambda size: next(names))

    def write(file):
        write_text_atomically(tmp_path / "page.html", "inner")
        file.write(b"outer")

    write_atomically(tmp_path / "page.html", write)
    assert (tmp_path / "page.html").read_text() == "outer"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@dataclass(frozen=True, slots=True)
class Settings:
    value: object


@pytest.mark.parametrize(
    ("kept", "given", "same"),
    [
        (Settings(20), Settings(20.0), True),
        (Settings((1, 2.0)), Settings((1.0, 2)), True),
        (Settings(-3.0), Settings(-3), True),
        (Settings(20.0), Settings(20.01), False),
        (Settings(1.5), Settings(1), False),
        (Settings("data-1.0"), Settings("data-1"), False),
        (Settings("1.0"), Settings("1"), False),
        (Settings(True), Settings(1.0), False),
    ],
)
def test_a_label_is_that_of_equal_values(kept, given, same):
    assert is_label_of(repr(kept), given) is same
    assert not is_label_of(None, given)
