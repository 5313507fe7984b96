"""``fedroster log`` and ``simulate --record``: facts that the commands tell, whatever their sentences are."""

import json
import shutil

import polars
import pytest

from fedroster import Floor, Group, Record, Rules, Selector
from frozen.calls import NAMES, begun, call
from frozen.door import close, cohorts_of, command, files_of, recorded


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("federation")
    made, policy, given = begun(Floor(beta=0.1), rules=Rules(deny=["site-4"]))
    selector = recorded(made, policy, folder, **given)
    asked = []
    for number in range(40):
        here = selector.clients
        what, said = call(selector, number, rules=False)
        asked += [(said, here)] if what == "ask" else []
    close(selector)
    return folder, selector, asked


def test_verify(federation):
    folder, selector, _ = federation
    command("log", "verify", folder / "log")
    found = json.loads(command("log", "verify", folder / "log", "--json"))
    assert found["is_whole"] is True
    assert found["num_decided"] == found["num_rounds"] == selector.round
    assert json.loads(command("log", "verify", folder / "log", "--json", "--head", found["head"]))["is_whole"] is True
    assert (
        json.loads(command("log", "verify", folder / "log", "--json", "--head", "0" * 64, code=1))["is_whole"] is False
    )
    command("log", "verify", folder / "log", "--policy", "random", code=1)


def test_show(federation):
    folder, _, asked = federation
    rows = json.loads(command("log", "show", folder / "log", "--rounds", "2-5", "--json"))
    assert [row["round"] for row in rows] == [2, 3, 4, 5]
    for row in rows:
        cohort, here = asked[row["round"] - 1]
        assert row["cohort"] == list(cohort.clients)
        assert row["members"] == len(here)
        assert len(row["status"]) == len(row["time_s"]) == len(cohort.clients)
    assert all(name in command("log", "show", folder / "log") for name in map(str, asked[-1][0].clients))
    command("log", "show", folder / "log", "--rounds", "x", code=2)
    command("log", "show", folder / "nowhere", code=1)


def test_why(federation):
    folder, _, asked = federation
    cohort, here = asked[6]
    for name in NAMES:
        if name in here:
            said = " ".join(command("log", "why", folder / "log", name, 7).split())
            assert str(name) in said
            assert ("was chosen" in said) == (name in cohort.clients)
    gone = next(name for name in NAMES[:12] if any(name not in there for _, there in asked))
    first = next(number for number, (_, there) in enumerate(asked, 1) if gone not in there)
    assert "not a member" in command("log", "why", folder / "log", gone, first)
    rows = json.loads(command("log", "show", folder / "log", "--rounds", "1-40", "--json"))
    denied = next(row["round"] for row in rows if row["excluded"])
    assert all(word in command("log", "why", folder / "log", "site-4", denied) for word in ("excluded", "denied"))
    command("log", "why", folder / "log", "stranger", 7, code=2)
    command("log", "why", folder / "log", NAMES[0], 10_000, code=2)


def test_why_says_which_rule_decided(tmp_path):
    def said(name, **rules):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        selector = Selector(
            Floor(beta=0.0), cohort_size=2, clients=list("abcd"), rules=Rules(**rules), observers=[Record(folder)]
        )
        selector.select()
        return " ".join(command("log", "why", folder, name, 1).split())

    first, last = said("c", priorities={"c": 2, "d": 1}), said("a", priorities={"c": 2, "d": 1})
    assert all(word in first for word in ("was chosen", "priority", " 2"))
    assert all(word in last for word in ("not chosen", "priority", " 0"))
    assert "'sites'" in said("c", groups={"sites": Group(["c"], least=1)})


def test_export(federation, tmp_path):
    folder, _, asked = federation
    command("log", "export", folder / "log", tmp_path / "all.parquet")
    command("log", "export", folder / "log", tmp_path / "cohorts.parquet", "--cohorts")
    every, chosen = polars.read_parquet(tmp_path / "all.parquet"), polars.read_parquet(tmp_path / "cohorts.parquet")
    assert every.height == sum(len(here) for _, here in asked)
    assert chosen.height == sum(len(cohort.clients) for cohort, _ in asked)
    assert {"round", "client", "chosen", "available", "excluded", "status", "time_s", "owed"} <= set(every.columns)
    assert every.filter("chosen").select("round", "client").rows() == chosen.select("round", "client").rows()
    of_seven = every.filter((polars.col("round") == 7) & polars.col("chosen"))["client"].to_list()
    assert of_seven == [str(client) for client in asked[6][0].clients]


def test_a_changed_record_is_said(federation, tmp_path):
    folder, _, _ = federation
    shutil.copytree(folder / "log", tmp_path / "log")
    (file,) = files_of(tmp_path)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    command("log", "verify", tmp_path / "log", code=1)
    command("log", "show", tmp_path / "log", code=1)


def test_a_simulation_keeps_a_record(tmp_path):
    more = ("--rounds", 6, "--record", tmp_path / "log")
    command("simulate", "rbcs-f/table-1", "--policy", "rbcs-f:V=5", *more)
    assert json.loads(command("log", "verify", tmp_path / "log", "--json"))["num_decided"] == 6
    assert [number for number, _ in cohorts_of(tmp_path)] == [1, 2, 3, 4, 5, 6]
    command("simulate", "rbcs-f/table-1", "--policy", "rbcs-f:V=5", *more, code=2)  # the folder holds one
    command("simulate", "cocs/mnist", "--policy", "cocs", "--rounds", 4, "--record", tmp_path / "edges")
    assert json.loads(command("log", "verify", tmp_path / "edges", "--json"))["is_whole"] is True
