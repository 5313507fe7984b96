"""Which code made a run: edits of a plug-in's policy are seen, wherever its code lives."""

import pytest

from fedroster.catalogue import policies, scenarios
from fedroster.core import sources
from fedroster.core.sources import code, code_of
from fedroster.lab.trials.store import read_json, read_table

POLICY = '''
"""A policy of another package."""

from dataclasses import dataclass

import numpy as np

from fedroster.core.problem import Selection
from fedroster.policies import Uniform
from . import order


@dataclass(frozen=True)
class Greedy(Uniform):
    """Always the same clients."""

    def select(self, state, context, /, *, rng):
        rows = np.flatnonzero(context.available)
        return Selection(context.round, np.sort(order.ranked(rows)[: context.cohort_size]))
'''
ORDER = '''
def ranked(rows):
    """The clients that are taken first."""
    return rows
'''


@pytest.fixture
def plugin(tmp_path):
    """An installed distribution with a policy, whose choice stands in a module of its own; gives the folder."""
    info, package = tmp_path / "home" / "greedy-1.0.dist-info", tmp_path / "home" / "greedy"
    info.mkdir(parents=True)
    package.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greedy\nVersion: 1.0\n")
    (info / "RECORD").write_text("greedy/__init__.py,,\n")
    (info / "entry_points.txt").write_text("[fedroster.policies]\ngreedy = greedy.policy:Greedy\n")
    (package / "__init__.py").write_text("")
    (package / "policy.py").write_text(POLICY)
    (package / "order.py").write_text(ORDER)
    (package / "other.py").write_text("")
    return package


def printed(forks, home, code):
    """What a process prints that finds a plug-in."""
    done = forks([f"import sys; sys.path.append({str(home)!r})\nfrom fedroster.core.sources import code_of\n{code}"])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_edit_of_a_plugins_policy_is_computed_again_by_the_same_command(plugin, tmp_path, forks):
    def compared():
        out, few = tmp_path / "out", "--seeds 0 --rounds 6 --task none --workers 1"
        command = ["fedroster", *f"compare --policy random --policy greedy {few} --out".split(), str(out)]
        calls = "from fedroster.cli import main\ntry: main()\nexcept SystemExit as end: assert not end.code"
        printed(forks, plugin.parent, f"sys.argv = {command}\n{calls}")
        table = read_table(out / "participation.parquet")
        return table.filter(table["policy"] == "greedy")["chosen"].to_list(), {
            path.name: path.stat().st_mtime_ns for path in (out / "trials").iterdir()
        }

    first, kept = compared()
    assert len(kept) == 2
    (plugin / "order.py").write_text(ORDER.replace("return rows", "return rows[::-1]"))
    second, more = compared()
    assert second != first
    assert len(more) == 3  # the run of random is taken
    assert kept.items() <= more.items()
    assert read_json(tmp_path / "out" / "settings.json")["policies"] == ["random", "greedy"]


def test_what_counts_is_what_lies_in_the_package(plugin, forks):
    def found():
        question = "from fedroster.catalogue import find_policy; print(code_of(find_policy('greedy').make))"
        return printed(forks, plugin.parent, question)

    first = found()
    assert "'greedy (distribution)': 'greedy 1.0'" in first
    assert "'greedy': " in first
    assert "'fedroster.policies': " in first  # of the base
    (plugin.parent / "other.py").write_text("x = 1")  # beside the package
    assert found() == first
    (plugin / "order.py").write_text(ORDER.replace("return rows", "return rows[::-1]"))
    second = found()
    metadata = plugin.parent / "greedy-1.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("1.0", "1.1"))
    third = found()
    (plugin / "another.py").write_text("")
    assert len({first, second, third, found()}) == 4


def test_a_module_beside_one_that_is_not_installed_counts(tmp_path, forks):
    (tmp_path / "mine.py").write_text("import bonus\nclass Mine:\n    k = bonus.K\n")
    (tmp_path / "bonus.py").write_text("K = 1")
    question = "from mine import Mine; print(code_of(Mine))"
    first = printed(forks, tmp_path, question)
    assert first == printed(forks, tmp_path, question)
    (tmp_path / "bonus.py").write_text("K = 2")
    assert first != printed(forks, tmp_path, question)


def test_every_policy_and_scenario_of_ours_is_known_by_its_own_folder():
    for entry in (*policies().values(), *scenarios().values()):
        found = code_of(entry.make)
        assert entry.make.__module__.rpartition(".")[0] in found
        assert all(len(digest) == 20 for digest in found.values())


def test_the_code_is_known_by_names_and_content_of_its_files(tmp_path, monkeypatch):
    (tmp_path / "part").mkdir()
    (tmp_path / "__init__.py").write_text("a")
    (tmp_path / "part" / "b.py").write_text("b")
    monkeypatch.setattr(sources, "__file__", str(tmp_path / "core" / "sources.py"))
    first = code()
    (tmp_path / "part" / "b.txt").write_text("no code")
    assert code() == first
    (tmp_path / "part" / "b.py").write_text("c")
    second = code()
    (tmp_path / "part" / "b.py").rename(tmp_path / "part" / "c.py")
    assert len({first, second, code()}) == 3
    (tmp_path / "part" / "c.py").rename(tmp_path / "part" / "b.py")
    (tmp_path / "part" / "b.py").write_text("b")
    assert code() == first
