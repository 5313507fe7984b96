"""``fedroster log`` and ``simulate --record``."""

import csv
import math

import polars as pl
import pytest

from commands import call
from federations import LETTERS_LIST, POLICY, answered, play
from fedroster import RBCSF, Floor, Group, Oort, Record, Rules, Selector, Uniform
from fedroster.policies import Dirichlet
from fedroster.record import Log


def run(*arguments, code=0):
    return call(*arguments, code=code).output


def recorded(folder, clients, policy=POLICY, *, cohort_size=3, **options):
    return Selector(policy, cohort_size=cohort_size, clients=clients, observers=[Record(folder)], **options)


def test_a_log_is_verified_with_the_policy_that_it_names(tmp_path):
    play(recorded(log := tmp_path / "log", LETTERS_LIST), 6)
    said = run("log", "verify", log)
    assert "6 of 6 were made again and are the same, bit for bit" in said
    assert "cannot show that lines were cut off" in said
    head = said.partition("Head: ")[2].split()[0]
    assert "found at line" in run("log", "verify", log, "--head", head)
    assert "HEAD NOT FOUND" in run("log", "verify", log, "--head", "0" * 64, code=1)


def test_a_client_that_is_a_number_has_its_rounds_explained_when_it_is_forgotten(tmp_path):
    selector = recorded(log := tmp_path / "log", [*LETTERS_LIST, 7])
    play(selector, 6)
    selector.leave([7], forget=True)
    selector.join(["new"])
    play(selector, 1)
    assert "In round 6, 7 was" in run("log", "why", log, "7", "6")
    assert run("log", "report", log, "--client", "7").startswith("# 7 in rounds 1 to 7")


@pytest.mark.parametrize("tells", [True, False])
def test_a_policy_that_was_never_told_losses_says_so(tmp_path, tells):
    selector = recorded(tmp_path / "log", LETTERS_LIST, Oort(), cohort_size=2)
    for _ in range(3):
        cohort = selector.select()
        told = dict.fromkeys(cohort.clients, 1.0)
        more = {"losses": told, "num_samples": told} if tells else {}
        selector.observe(cohort.round, times_s=told, **more)
    run("log", "page", tmp_path / "log", "--out", tmp_path / "page.html")
    for shown in (run("log", "show", tmp_path / "log"), (tmp_path / "page.html").read_text()):
        assert ("The policy learns from losses, and none were told." in shown) != tells


def test_a_table_says_which_policies_choose_blindly():
    what = ("simulate", "rbcs-f/table-1", "--policy", "oort", "--policy", "floor", "--rounds", "3", "--seeds", "0")
    assert "none of without training, so blindly: oort." in run(*what)
    assert "blindly" not in run(*what[:2], *what[4:])


def test_a_log_is_exported_though_its_first_rounds_exclude_no_client(tmp_path):
    selector = recorded(folder := tmp_path / "log", [*LETTERS_LIST, 7])
    selector.select([])
    play(selector, 2)
    selector.rules = Rules(deny=["a"])
    play(selector, 2)
    for name in ("all.parquet", "all.csv"):
        run("log", "export", folder, tmp_path / name)
    every = pl.read_parquet(tmp_path / "all.parquet")
    assert pl.read_csv(tmp_path / "all.csv", schema=every.schema).equals(every)
    assert every.filter(client="a")["excluded"].drop_nulls().unique().to_list() == ["denied by 'a'"]
    (last,) = Log(folder).rounds[-1:]
    told = every.filter(round=last.round)
    assert told["client"].to_list() == [*LETTERS_LIST, "7"]
    assert told["owed"].to_list() == last.owed[last.members].tolist()
    assert told["context_2"].fill_null(math.nan).to_list() == pytest.approx(
        last.contexts[last.members, 2].tolist(), abs=0.0, nan_ok=True
    )


@pytest.mark.parametrize("name", ["=1+1", "\r=1+1", "a\r=1+1", "a\n=1+1", 'a",=1+1'])
def test_no_cell_of_an_exported_log_is_a_formula(name, tmp_path):
    selector = recorded(tmp_path / "log", [*LETTERS_LIST, name])
    play(selector, 2)
    run("log", "export", tmp_path / "log", tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(newline="") as table:
        rows = list(csv.reader(table))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert not [cell for row in rows for cell in row if cell.lstrip().startswith("=")]


def test_why_says_whether_chance_or_a_rule_decided(tmp_path):
    clients = ["a", "b", "c", "d"]

    def why(policy, cohort_size=2, **options):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        selector = recorded(folder, clients, policy, cohort_size=cohort_size, **options)
        cohort = selector.select()
        away = [client for client in clients if client not in cohort.clients]
        return [run("log", "why", folder, client, 1).replace("\n", " ") for client in (*cohort.clients, *away)]

    assert all("because chance decided" in said for said in why(Floor(beta=0.0)))  # nothing is known yet
    assert all("because chance decided (with a probability of 0.5)" in said for said in why(Uniform()))
    assert all("because chance decided;" in said or "because chance decided," in said for said in why(Dirichlet()))
    rules = Rules(groups={"few": {"clients": ["a", "b"], "most": 1}, "sites": {"clients": ["c"], "least": 1}})
    said = why(Floor(beta=0.0), cohort_size=3, rules=rules)
    assert "its group 'few' has 1 of the places (at most 1)" in said[-1]
    assert any("its group 'sites' has 1 of the places (at least 1)" in each for each in said)


def test_simulations_keep_their_logs(tmp_path):
    several = ("--policy", "random", "--policy", "rbcs-f:V=5", "--seeds", "0-1", "--rounds", 2)
    run("simulate", "rbcs-f/table-1", *several, "--record", tmp_path / "many")
    names = sorted(place.name for place in (tmp_path / "many").iterdir())
    assert names == ["random-seed-0", "random-seed-1", "rbcs-f-V=5-seed-0", "rbcs-f-V=5-seed-1"]


def test_what_is_no_log_is_said(tmp_path):
    assert "no log in" in run("log", "verify", tmp_path, code=1)
    assert "no folder" in run("log", "show", tmp_path / "nowhere", code=1)


def test_a_decision_in_a_group_is_compared_within_it(tmp_path):
    """The case of the reading: two countries, two places each; the client was as fast as those of the other country."""
    sites = [f"{country}-{number}" for country in ("de", "fr") for number in range(4)]
    rules = Rules(groups={country: {"clients": [f"{country}-*"], "least": 2, "most": 2} for country in ("de", "fr")})
    selector = recorded(tmp_path, sites, RBCSF(V=1.0, beta=0.2), cohort_size=4, rules=rules)
    for _ in range(12):
        cohort = selector.select()
        slow = {client: 1.0 + int(client[-1]) + 4.0 * client.startswith("fr") for client in cohort.clients}
        selector.observe(cohort.round, times_s=slow)
    log = Log(tmp_path)
    found = {}
    for played in log.rounds:
        chosen = [log.ids[slot] for slot in played.chosen]
        for client in sites:
            if client not in chosen:
                said = run("log", "why", tmp_path, client, played.round)
                mates = [log.ids.index(each) for each in chosen if each[:2] == client[:2]]
                low, high = (f"{end:.3g}" for end in (played.owed[mates].min(), played.owed[mates].max()))
                assert f"(the others of its group {low if low == high else f'{low} to {high}'} rounds)" in said
                found[said.partition("because ")[2].partition(";")[0]] = said
    assert found.keys() >= {"others were owed more", "others were faster"}
    assert "it would have been preferred if it had been" in found["others were owed more"]


def test_a_name_with_a_bar_adds_no_cell_to_the_letter(tmp_path):
    rules = Rules(groups={"north | east": Group(["a*"], most=1)}, deny=["a|2"])
    clients = ["a|1", "a|2", "a3", "b"]
    selector = recorded(tmp_path / "log", clients, Floor(beta=0.25), cohort_size=2, rules=rules)
    answered(selector, 8)
    said = run("log", "report", tmp_path / "log", "--client", "a|2")
    assert "denied by 'a\\|2'" in said
    tables = [part for part in said.split("\n\n") if part.startswith("| ")]
    assert [{line.replace("\\|", "").count("|") for line in table.splitlines()} for table in tables] == [{3}, {4}]


def test_the_letter_about_a_client_holds_all_its_rounds(tmp_path):
    clients = list("abcdef")
    selector = recorded(tmp_path / "log", clients, Floor(beta=0.25), cohort_size=2)
    chosen, waits, wait = 0, [0], 0
    for number in range(60):
        if number == 40:
            selector.rules = Rules(deny=["f"])
        there = [client for client in clients if client != "f" or number % 3]
        cohort = selector.select(there)
        chosen += "f" in cohort.clients
        wait = 0 if "f" in cohort.clients else wait + 1
        waits.append(wait)
        selector.observe(cohort.round, times_s={each: 1.0 + clients.index(each) for each in cohort.clients})
    said = run("log", "report", tmp_path / "log", "--client", "f")
    assert f"took part in {chosen} of 60 rounds" in said
    assert "| was not available | 20 |" in said
    assert "| was available, but excluded from every cohort: denied by 'f' | 14 |" in said
    assert f"Its longest wait took {max(waits)} rounds" in said
    assert "promises 25.0% of all in the long run, 15: this lacks" in said
    rows = [line for line in said.splitlines() if line[:3].strip("| ").isdecimal() or line[2:4].strip().isdecimal()]
    assert len(rows) == 60
    assert sum("was chosen, one of" in row for row in rows) == chosen
    table = said.split("| --- | --- |")[1].split("## Round")[0]
    assert sum(int(line.split("|")[2]) for line in table.splitlines() if line.startswith("| was")) == 60
    run("log", "report", tmp_path / "log", "--client", "f", "--out", tmp_path / "f.md")
    assert (tmp_path / "f.md").read_text() == said
    assert "unknown client 'g'" in run("log", "report", tmp_path / "log", "--client", "g", code=2)
