"""Tables and settings on disk."""

import errno
import io
import math
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedroster.core.errors import InvalidInputError
from fedroster.lab.trials.store import machine, read_json, read_table, write_json, write_table

TABLE = pl.DataFrame(
    {
        "policy": ["rbcs-f:V=20,beta=0.1", 'quote"d', "é, ü", "random"],
        "seed": [0, 1, 2, 3],
        "value": [0.1, 1.0 / 3.0, 1e-300, -12345678.987654321],
        "missing": [None, 2.5, None, 1.0],
        "flag": [True, False, True, True],
    }
)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables_come_back_exactly(tmp_path, suffix):
    path = tmp_path / "new" / "folder" / f"table.{suffix}"
    write_table(TABLE, path)
    found = read_table(path)
    assert found.schema == TABLE.schema
    assert found.rows() == TABLE.rows()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["~root", "[ab]", "*"])
def test_a_folders_name_is_no_pattern(tmp_path, monkeypatch, suffix, name):
    monkeypatch.chdir(tmp_path)
    for folder, table in ((name, TABLE), ("a", TABLE.head(1))):
        write_table(table, Path(folder) / f"t.{suffix}")
    assert read_table(Path(name) / f"t.{suffix}").height == TABLE.height


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_an_accident_leaves_the_old_table_and_no_view_of_a_buffer(tmp_path, monkeypatch, suffix):
    """An error that lives on with such a view crashes Python 3.12.1 when both are collected."""
    path = tmp_path / f"table.{suffix}"
    write_table(TABLE, path)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as found:
        write_table(TABLE.head(1), path)
    assert read_table(path).rows() == TABLE.rows()
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    frame, buffers = found.value.__traceback__, []
    while frame is not None:
        buffers += [value for value in frame.tb_frame.f_locals.values() if isinstance(value, io.BytesIO)]
        frame = frame.tb_next
    assert len(buffers) == (suffix == "parquet")  # that of CSV has gone before the file is written
    for buffer in buffers:
        buffer.close()  # BufferError if there is a view


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_is_no_table(tmp_path, suffix):
    path, folder = tmp_path / f"table.{suffix}", tmp_path / f"folder.{suffix}"
    folder.mkdir()
    write_table(TABLE, path)
    damaged = path.read_bytes()[:-20] if suffix == "parquet" else b"a,b\n1,2\n1,2,3,4\n"
    for place, content in ((tmp_path / f"none.{suffix}", None), (folder, None), (path, b""), (path, damaged)):
        if content is not None:
            place.write_bytes(content)
        with pytest.raises(InvalidInputError, match=rf"{place.name}' is not a readable table"):
            read_table(place)


def test_json_comes_back(tmp_path):
    content = {"a": 1, "b": [0.1, None, "é"], "c": {"d": True}}
    write_json(tmp_path / "new" / "settings.json", content)
    assert read_json(tmp_path / "new" / "settings.json") == content
    assert (tmp_path / "new" / "settings.json").read_text().endswith("}\n")


@pytest.mark.parametrize("content", [b"", b"{", b"{'a': 1}", b"\x00", b"[" * 100_000, b"\xff\xfe", b"[1, 2]", None])
def test_what_is_no_json(tmp_path, content):
    path = tmp_path / "settings.json"
    if content is not None:
        path.write_bytes(content)
    expected = (
        "holds a list; expected an object" if content == b"[1, 2]" else "settings.json' is not a readable JSON file"
    )
    with pytest.raises(InvalidInputError, match=expected):
        read_json(path)


def test_the_machine_is_described():
    about = machine()
    assert about["fedroster"]
    assert about["numpy"] == np.__version__
    assert about["cores"] >= 1
    assert all(value != "" for name, value in about.items() if name != "processor")
    assert not any(isinstance(value, float) and math.isnan(value) for value in about.values())
