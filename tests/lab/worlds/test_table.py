"""A user's own traces as tables."""

import sys

import numpy as np
import polars as pl
import pytest

from fedroster.core.errors import DataFileError, MissingDataError, MissingDependencyError
from fedroster.lab.worlds.table import read_table

TABLE = """client,time,available,compute,bandwidth
b,0,1,20,5
a,10,true,30,2.5
b,60,0,,
a,50,false,30,2.5
b,80,1,20,5
b,100,0,20,5
"""


@pytest.fixture
def table(tmp_path):
    def write(text=TABLE):
        (tmp_path / "t.csv").write_text(text)
        return tmp_path / "t.csv"

    return write


def test_rows_become_sessions(table):
    sessions, speeds = read_table(table())
    assert sessions.offsets.tolist() == [0, 2, 3]  # b comes first in the file
    assert sessions.start_s.tolist() == [0.0, 80.0, 10.0]
    assert sessions.end_s.tolist() == [60.0, 100.0, 50.0]
    assert (sessions.period_s, sessions.num_devices, sessions.device.tolist()) == (100.0, 2, [0, 0, 1])
    np.testing.assert_allclose(sessions.share(), [0.8, 0.4])
    assert not speeds.by_session
    np.testing.assert_allclose(speeds.compute_s, [0.020, 0.030])
    np.testing.assert_allclose(speeds.bandwidth_bps, [5e6, 2.5e6])


def test_the_last_row_holds_until_the_end(table):
    sessions, _ = read_table(table(TABLE.replace("b,100,0,20,5\n", "a,400,0,,\n")))
    assert sessions.end_s.tolist() == [60.0, 400.0, 50.0]
    assert sessions.period_s == 400.0


def test_parquet_says_the_same(table, tmp_path):
    frame = pl.read_csv(table())
    frame.with_columns(pl.col("available").is_in(["1", "true"])).write_parquet(tmp_path / "t.parquet")
    for left, right in zip(read_table(tmp_path / "t.parquet"), read_table(table()), strict=True):
        for name in left.__slots__:
            np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def test_speeds_that_change(table):
    changing = "client,time,available,compute,bandwidth\n5,0,1,20,5\n5,30,1,20,50\n5,60,0,,\n5,100,0,,\n"
    sessions, speeds = read_table(table(changing))
    assert (sessions.start_s.tolist(), sessions.end_s.tolist()) == ([0.0, 30.0], [30.0, 60.0])
    assert speeds.by_session
    np.testing.assert_allclose(speeds.bandwidth_bps, [5e6, 50e6])


def test_columns_in_any_order_and_further_ones(table):
    frame = pl.read_csv(table())
    frame.select("bandwidth", "available", pl.lit("x").alias("model"), "compute", "time", "client").write_csv(table())
    assert read_table(table().parent / "t.csv")[0].start_s.shape == (3,)


def row(line, text):
    lines = TABLE.splitlines()
    lines[line - 1] = text
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv"),
        ("client,time,available,compute,bandwidth\n", "empty"),
        (TABLE.replace("bandwidth", "speed"), "bandwidth"),
        (row(3, ",10,1,30,2.5"), "line 3, .* a client"),
        (row(3, "a,soon,1,30,2.5"), "line 3, client 'a': .* time"),
        (row(3, "a,-10,1,30,2.5"), "line 3, client 'a': .* time"),
        (row(3, "a,inf,1,30,2.5"), "line 3, client 'a': .* time"),
        (row(3, "a,10,2,30,2.5"), "line 3, client 'a': .* available"),
        (row(3, "a,10,1,fast,2.5"), "line 3, client 'a': .* compute"),
        (row(3, "a,10,1,30,1e305"), "line 3, client 'a': .* bandwidth"),
        (row(3, "a,10,1,1e-323,1"), "line 3, client 'a': .* compute"),
        (row(5, "a,10,0,30,2.5"), "line 5, client 'a': .* later"),
        (row(4, "b,90,0,,"), "line 6, client 'b': .* later"),
        (row(3, "a,10,0,30,2.5"), "line 3, client 'a': .* available for some time"),
        ("client,time,available,compute,bandwidth\na,0,1,20,5\n", "line 2, client 'a': .* available for some time"),
    ],
)
def test_malformed(table, text, message):
    with pytest.raises(DataFileError, match=message):
        read_table(table(text))


def test_the_first_wrong_line_is_named(table):
    text = row(7, "b,100,0,-1,").replace("b,0,1,20,5", "b,0,1,-20,5").replace("a,10,true,30", "a,10,true,-30")
    with pytest.raises(DataFileError, match="line 2, client 'b'"):
        read_table(table(text))


def test_other_mistakes(table, tmp_path):
    with pytest.raises(MissingDataError, match="no file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "t.parquet").write_text(TABLE)
    with pytest.raises(DataFileError, match="parquet"):
        read_table(tmp_path / "t.parquet")
    pl.DataFrame({name: [[1]] for name in ("client", "time", "available", "compute", "bandwidth")}).write_parquet(
        tmp_path / "t.parquet"
    )
    with pytest.raises(DataFileError, match="parquet"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("kind", [pl.Duration("ms"), pl.Datetime("us"), pl.Time, pl.Boolean])
def test_times_of_parquet_are_numbers(table, tmp_path, kind):
    """A duration was taken for as many seconds as it has of its own units."""
    pl.read_csv(table()).with_columns(pl.col("time").cast(pl.Int64).cast(kind)).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataFileError, match=r"time is .*; expected numbers"):
        read_table(tmp_path / "t.parquet")


def test_a_fault_of_the_reader_is_the_files(table, monkeypatch):
    """Of a few hundred Parquet files with a few wrong bytes one makes polars panic, which is no Exception."""

    def panic(*_, **__):
        raise pl.exceptions.PanicException("assertion failed")

    monkeypatch.setattr(pl, "read_csv", panic)
    with pytest.raises(DataFileError, match="assertion failed"):
        read_table(table())


def test_without_polars(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingDependencyError, match=r"\.\[study\]"):
        read_table(table())
