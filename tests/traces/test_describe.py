"""``fedroster data traces``: converted, checked, and used."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from typer.testing import CliRunner

from fedroster import cli
from fedroster.core.errors import DataFileError, InvalidInputError, MissingDataError
from fedroster.traces.describe import convert, describe
from fedroster.traces.fedscale import CAPACITIES, SESSIONS
from fedroster.traces.files import Sessions, Speeds, save_traces
from fedroster.traces.population import BANDWIDTH_MBPS, COMPUTE_MS, SHARE

TABLE = """client,time,available,compute,bandwidth
anna,0,1,24,6.2
ben,0,0,,
ben,1800,1,41,2.9
anna,43200,0,,
ben,9000,0,,
ben,86400,0,,
"""
PHONES = {1: {"computation": 40.0, "communication": 2000.0}, 2: {"computation": 60.0, "communication": 8000.0}}
TRACES = {1: {"active": [10, 30], "inactive": [20, 45], "finish_time": 100}}


class Command:
    """What a pickle could run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.fixture
def table(tmp_path):
    (tmp_path / "phones.csv").write_text(TABLE)
    return tmp_path / "phones.csv"


@pytest.fixture
def pickles(tmp_path):
    folder = tmp_path / "device_info"
    folder.mkdir()
    (folder / CAPACITIES).write_bytes(pickle.dumps(PHONES))
    (folder / SESSIONS).write_bytes(pickle.dumps(TRACES))
    return folder


@pytest.fixture(autouse=True)
def _settings(monkeypatch):
    monkeypatch.delenv("FEDROSTER_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


def call(*arguments, code=0):
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


# -------------------------------------------------------------------- conversion and description


def test_a_table_and_its_npz_say_the_same(table, tmp_path):
    assert convert(table, tmp_path / "new" / "phones.npz") == (tmp_path / "new" / "phones.npz",)
    for path in (table, tmp_path / "new" / "phones.npz"):
        found = describe(path)
        assert found.counts() == {
            "devices": 2,
            "sessions": 2,
            "shortest_period_s": 86_400.0,
            "longest_period_s": 86_400.0,
            "speeds": 2,
        }
        compute, bandwidth, share = found.quantiles()
        np.testing.assert_allclose(compute.values[2], 32.5)
        np.testing.assert_allclose(bandwidth.values[2], 4.55)
        np.testing.assert_allclose(share.values[2], (0.5 + 7200 / 86_400) / 2)
        assert (compute.published, bandwidth.published, share.published) == (COMPUTE_MS, BANDWIDTH_MBPS, SHARE)
        assert found.sentences() == ["sessions: 2, of devices: 2, in days: 1", "devices with speeds: 2"]


def test_fedscales_pickles(pickles, tmp_path):
    target = tmp_path / "npz"
    assert [path.name for path in convert(pickles, target)] == [f"{CAPACITIES}.npz", f"{SESSIONS}.npz"]
    found = describe(target)
    assert found.sentences()[-1] == "devices with speeds: 2"
    assert found.counts()["devices"] == 1
    # One of the files alone, in a folder or by itself.
    (target / f"{SESSIONS}.npz").unlink()
    for path in (target, target / f"{CAPACITIES}.npz"):
        assert describe(path).sessions is None
        assert [row.what for row in describe(path).quantiles()] == ["compute, ms a sample", "bandwidth, Mbit/s"]


def test_speeds_of_sessions(tmp_path):
    sessions = Sessions(np.array([0, 2]), np.array([0.0, 10.0]), np.array([5.0, 20.0]), np.full(1, 30.0))
    save_traces(tmp_path / "t.npz", sessions=sessions, speeds=Speeds(np.ones(2), np.ones(2), by_session=True))
    assert describe(tmp_path / "t.npz").sentences()[-1] == "sessions with speeds: 2"


# -------------------------------------------------------------------- mistakes


def test_nothing_is_written_for_a_bad_source(table, pickles, tmp_path):
    table.write_text(TABLE.replace("ben,9000", "ben,900"))
    with pytest.raises(DataFileError, match=r"phones\.csv, line 6, client 'ben': expected times that ascend"):
        convert(table, tmp_path / "out" / "phones.npz")
    (pickles / SESSIONS).write_bytes(pickle.dumps({1: Command(tmp_path / "harm")}))
    with pytest.raises(DataFileError, match="asks for"):
        convert(pickles, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "harm").exists()


def test_targets_and_sources_that_do_not_fit(table, pickles, tmp_path):
    with pytest.raises(InvalidInputError, match=r"expected a file that ends in \.npz"):
        convert(table, tmp_path / "phones")
    with pytest.raises(InvalidInputError, match=r"expected a folder for FedScale's records"):
        convert(pickles, tmp_path / "phones.npz")
    with pytest.raises(InvalidInputError, match="expected no period"):
        convert(pickles, tmp_path / "npz", period_s=5.0)
    with pytest.raises(InvalidInputError, match=r"expected a table that ends in \.csv or \.parquet"):
        convert(pickles / SESSIONS, tmp_path / "phones.npz")
    with pytest.raises(MissingDataError, match="no file"):
        convert(tmp_path / "none.csv", tmp_path / "phones.npz")
    with pytest.raises(MissingDataError, match=r"holds no traces; expected client_device_capacity\.npz"):
        describe(tmp_path)
    with pytest.raises(MissingDataError, match="no file"):
        describe(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(DataFileError, match="neither sessions nor speeds"):
        describe(tmp_path / "other.npz")


# -------------------------------------------------------------------- the command line


def test_convert_describe_and_simulate(table, tmp_path):
    target = tmp_path / "phones.npz"
    printed = call("data", "traces", "convert", table, target, "--period", "86400")
    assert "sessions: 2, of devices: 2, in days: 1; devices with speeds: 2" in printed.stdout
    assert "published" in printed.stdout
    found = json.loads(call("data", "traces", "describe", target, "--json").stdout)
    assert found["sessions"] == 2
    assert found["levels"] == [0.05, 0.25, 0.5, 0.75, 0.95]
    assert [row["published"] for row in found["measures"]] == [list(COMPUTE_MS), list(BANDWIDTH_MBPS), list(SHARE)]
    own = ["--set", f"traces={target}", "--set", "resample=false", "--set", "num_clients=2", "--set", "cohort_size=1"]
    options = ["--policy", "round-robin", "--rounds", "5", "--json"]
    first, *_ = json.loads(call("simulate", "traces/devices", *own, *options).stdout)
    assert first["settings"]["traces"] == str(target)


def test_the_end_of_the_trace_wraps_or_stops(table, tmp_path):
    target = tmp_path / "phones.npz"
    call("data", "traces", "convert", table, target)
    own = ["--set", f"traces={target}", "--set", "resample=false", "--set", "num_clients=2", "--set", "cohort_size=1"]
    options = ["--policy", "random", "--rounds", "40", "--set", "round_interval_s=3600"]
    call("simulate", "traces/devices", *own, *options, "--set", "at_end=wrap")
    stopped = call("simulate", "traces/devices", *own, *options, "--set", "at_end=stop", code=2)
    message = " ".join(stopped.stderr.split())
    assert "error: round 25 would start at 86700 s, and the trace of client 0 ends at 86400 s" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("ben,1800,1,41", "ben,1800,1,-41"), "line 4, client 'ben': expected a finite compute > 0"),
        (("ben,1800,1,41", "ben,1800,1,"), "line 4, client 'ben': expected a finite compute > 0"),
        (("2.9", "-2.9"), "line 4, client 'ben': expected a finite bandwidth > 0"),
        (("ben,9000", "ben,1800"), "line 6, client 'ben': expected times that ascend"),
        (("ben,86400,0,,\n", "ben,86400"), "line 7, client 'ben': available is None"),
        (("ben,1800,1,41,2.9\n", ""), "line 3, client 'ben': it is never available"),
        (("anna,0,1", "anna,-5,1"), "line 2, client 'anna': expected a finite time >= 0"),
    ],
    ids=["negative", "absent", "slow link", "unordered", "truncated", "idle", "before the start"],
)
def test_a_bad_table_is_one_line_with_client_and_line(table, tmp_path, change, message):
    table.write_text(TABLE.replace(*change))
    for arguments in (("convert", table, tmp_path / "phones.npz"), ("describe", table)):
        result = call("data", "traces", *arguments, code=1)
        assert message in " ".join(result.stderr.split())
    assert not (tmp_path / "phones.npz").exists()
