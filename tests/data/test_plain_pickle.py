"""Pickles of plain values are compared with pickle itself, without any limits."""

from __future__ import annotations

import contextlib
import io
import pickle
import pickletools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroster.core.errors import DataFileError
from fedroster.data.plain_pickle import read_plain_pickle

PROTOCOLS = [2, 3, 4, 5]

numbers = st.integers(-(2**61) + 2, 2**61 - 2) | st.floats(allow_nan=False) | st.booleans() | st.none()
plain = st.recursive(
    numbers | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.integers(0, 1000) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=30,
)


@settings(max_examples=150, deadline=None)
@given(plain, st.sampled_from(PROTOCOLS))
def test_agrees_with_pickle(value, protocol):
    assert read_plain_pickle(pickle.dumps(value, protocol=protocol), name="x") == value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_long_texts_long_lists_and_repeated_values(protocol):
    shared = ["x" * 1000, "y" * 70_000]
    value = {k: {"computation": float(k), "names": shared, "t": (k,) * 5, "e": ()} for k in range(2500)}
    assert read_plain_pickle(pickle.dumps(value, protocol=protocol), name="x") == value


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["f4", "f8", "i1", "i4", "i8", "u2", ">i4", ">f8", "?"])
def test_numpy_scalars_become_numbers(protocol, kind):
    value = {"a": [np.array(1, kind)[()], np.array(0, kind)[()]], "b": np.array(1, kind)[()]}
    read = read_plain_pickle(pickle.dumps(value, protocol=protocol), name="x")
    assert read == {"a": [1, 0], "b": 1}
    assert type(read["b"]) in (int, float, bool)


@pytest.mark.parametrize(
    "steps",
    [
        b"}q\x01(U\x01aq\x02K\x05U\x01bh\x02u.",
        b"}r\x01\0\0\0U\x01ar\x02\x01\0\0J\xfe\xff\xff\xffsU\x01bj\x02\x01\0\0s.",
        b"}U\x01a]K\x01a(M\x00\x01T\x03\0\0\0xyzNes.",
        b"}U\x01aK\x01K\x02\x86\x85sU\x01b(K\x01K\x02\x89ts.",
    ],
)
def test_steps_that_only_python_2_writes(steps):
    content = b"\x80\x02" + steps
    assert read_plain_pickle(content, name="x") == pickle.loads(content, encoding="bytes")


def test_the_byte_order_of_a_scalar():
    content = pickle.dumps(np.int32(1), protocol=4)
    assert content.count(b"<") == 1
    assert read_plain_pickle(content, name="x") == 1
    assert read_plain_pickle(content.replace(b"<", b">"), name="x") == 2**24


def test_a_scalar_under_numpys_older_name():
    content = pickle.dumps(np.float64(2.5), protocol=2)
    older = content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert read_plain_pickle(older, name="x") == read_plain_pickle(content, name="x") == 2.5


class Touch:
    """A pickle of this creates a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("protocol", [0, 1, *PROTOCOLS])
def test_no_code_of_a_file_runs(tmp_path, protocol):
    content = pickle.dumps({1: Touch(tmp_path / "hit")}, protocol=protocol)
    with pytest.raises(DataFileError, match="file is truncated, or not a pickle of plain values"):
        read_plain_pickle(content, name="file")
    assert not (tmp_path / "hit").exists()
    pickle.loads(content)[1].close()  # negative control: pickle does run it
    assert (tmp_path / "hit").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.", "asks for os.system; expected plain containers and NumPy"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", "asks for os.system"),
        (b"\x80\x04K\x01\x8c\x06system\x93.", "STACK_GLOBAL requires str"),
        (b"\x80\x02cnumpy\nfromfile\nX\x01\0\0\0x\x85R.", "asks for numpy.fromfile"),
        (b"\x80\x02cnumpy\nndarray\nK\x05\x85R.", "asks for numpy.ndarray"),
        (b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n.", "asks for numpy.core.multiarray._reconstruct"),
        (b"\x80\x02cnumpy\ndtype\nX\x02\0\0\0O8K\x00K\x01\x87R.", "asks for the NumPy type 'O8'"),
        (b"\x80\x02cnumpy\ndtype\nK\x01\x85R.", "asks for the NumPy type 1"),
        (b"\x80\x02cnumpy.core.multiarray\nscalar\nK\x01\x85R.", "missing 1 required positional argument"),
        (b"\x80\x02cnumpy.core.multiarray\nscalar\nK\x01K\x01\x86R.", "has no len"),
        (b"\x80\x02X\x01\0\0\0aK\x01\x85R.", "argument list must be a tuple|not callable"),
        (b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x03\0\0\0hex\x86R.", "another encoding than Latin-1"),
        (b"\x80\x02}}K\x01K\x01sb.", "has no attribute '__dict__'"),
        (b"\x80\x02cnumpy\ndtype\n}b.", "a state fits no NumPy type"),
        (b"\x80\x02cnumpy\ndtype\nN}\x8c\x05_made\x8c\x01xs\x86b.", "a state fits no NumPy type"),
        (b"\x80\x02cnumpy\ndtype\nU\x02u1\x85R(K\x03U\x01xtb.", "a state fits no NumPy type"),
        (b"\x80\x02ccopyreg\n_reconstructor\n.", "asks for copyreg._reconstructor"),
        (b"\x80\x02\x82\x01.", "step EXT1 at byte 2 is not allowed"),  # the extension registry
        (b"\x80\x02(ios\nsystem\n.", "step INST at byte 3 is not allowed"),
        (b"\x80\x02Pname\n.", "step PERSID at byte 2 is not allowed"),
        (b"\x80\x02K\x01Q.", "step BINPERSID at byte 4 is not allowed"),
        (b"\x80\x02c\xff\n\xff\n.", "decode"),
        (b"\x80\x06N.", "does not start as protocols 2 to 5 do"),
        (b"N.", "does not start"),
        (b"\x80\x04N.N.", "something follows its end"),
        (b"\x80\x04.", "pop from empty list"),
        (b"\x80\x04X\x01\0\0\0\xff.", "decode"),
        (b"\x80\x04h\x07.", "7"),
        (b"\x80\x02}u.", "a key is dict"),
        (b"\x80\x02a.", "pop from empty list"),
        (b"\x80\x04\x94.", "list index out of range"),
        (b"\x80\x02Nr\xff\xff\xff\xff.", "LONG_BINPUT at byte 3 takes place 4294967295"),  # a table as long
    ],
)
def test_nothing_else_is_made(content, message):
    with pytest.raises(DataFileError, match=f"file is truncated, or not a pickle of plain values: .*({message})"):
        read_plain_pickle(content, name="file")


def test_a_scalar_of_a_wrong_size():
    content = pickle.dumps(np.float64(2.5), protocol=4)
    short = content.replace(b"f8", b"f4")
    with pytest.raises(DataFileError, match="a float32 has 8 bytes"):
        read_plain_pickle(short, name="file")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_truncated_anywhere(protocol):
    content = pickle.dumps({1: {"active": [1, 2, 300, 70_000], "model": "phone", "f": 1.5}}, protocol=protocol)
    read_plain_pickle(content, name="file")
    for size in range(len(content)):
        with pytest.raises(DataFileError, match="file is truncated"):
            read_plain_pickle(content[:size], name="file")


def test_sizes_that_a_file_lies_about_cost_nothing():
    for content in (b"\x80\x04\x8e" + b"\xff" * 8, b"\x80\x04B\xff\xff\xff\xff", b"\x80\x04\x8b\xff\xff\xff\x7f"):
        with pytest.raises(DataFileError, match="truncated"):
            read_plain_pickle(content, name="file")


SOUND = pickle.dumps(
    [{k: {"computation": 1.5 * k, "communication": np.float32(k)} for k in range(5)}, (b"x", None, True)],
    protocol=4,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=3))
def test_damage_gives_one_kind_of_error(changes):
    content = bytearray(SOUND)
    for place, value in changes:
        content[place] = value
    with contextlib.suppress(DataFileError):
        read_plain_pickle(bytes(content), name="file")


def test_the_protocols_are_covered():
    """The control for the tests above: they meet most of the steps that the reader knows."""
    seen = set()
    for protocol in PROTOCOLS:
        for value in ({1: [1, 300, -5, 2**40, 1.5, True, None, "x", "y" * 300, (), (1,), b"z"]}, np.float32(1)):
            out = io.StringIO()
            pickletools.dis(pickle.dumps(value, protocol=protocol), out=out)
            seen |= {line.split()[2] for line in out.getvalue().splitlines() if line[:1] == " "}
    assert {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "FRAME", "MEMOIZE", "LONG1", "BINFLOAT"} <= seen


def test_containers_need_bytes():
    """Each byte would make 64 bytes of memory."""
    with pytest.raises(DataFileError, match="more containers than its length can fill"):
        read_plain_pickle(b"\x80\x02" + b"}" * 50_000 + b".", name="f")


def test_keys_that_collide_are_refused():
    """A dictionary of them takes time that is quadratic in their number."""
    keys = b"".join(b"\x8a\x09" + (n * (2**61 - 1)).to_bytes(9, "little") + b"N" for n in range(1, 9))
    with pytest.raises(DataFileError, match="61 bits or more"):
        read_plain_pickle(b"\x80\x02}(" + keys + b"u.", name="f")


@pytest.mark.parametrize("key", [(1, 2), 1.5, None])
@pytest.mark.parametrize("count", [1, 3])
def test_keys_that_can_be_made_to_collide_are_refused(key, count):
    content = pickle.dumps({key: 1} | dict.fromkeys(range(count - 1)), 4)
    with pytest.raises(DataFileError, match=f"a key is {type(key).__name__}"):
        read_plain_pickle(content, name="x")
