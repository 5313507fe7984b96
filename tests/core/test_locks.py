"""A folder has one writer at a time."""

import json
import os
import subprocess
import sys

import pytest

from fedroster.core.errors import ConfigurationError, FedrosterError, InUseError
from fedroster.core.locks import FolderLock


def test_a_held_folder_is_refused_and_its_holder_named(tmp_path):
    lock = FolderLock(tmp_path)
    with pytest.raises(InUseError, match=rf"is held by process {os.getpid()} on "):
        FolderLock(tmp_path)
    lock.release()
    lock.release()  # once more does no harm
    FolderLock(tmp_path).release()
    assert issubclass(InUseError, FedrosterError)


LONG = json.dumps(dict.fromkeys(("process", "host", "program", "since"), "x" * 10**6))


@pytest.mark.parametrize(("holder", "named"), [("[]", "another process"), (LONG, "process xxx")], ids=["none", "long"])
def test_a_holder_that_cannot_be_read_is_another_process_and_is_named_in_short(tmp_path, holder, named):
    lock = FolderLock(tmp_path)
    (tmp_path / ".lock.json").write_text(holder)
    with pytest.raises(InUseError, match=f"is held by {named}") as refused:
        FolderLock(tmp_path)
    assert len(str(refused.value)) < 2000
    lock.release()


@pytest.mark.parametrize("name", [".lock", ".lock.json", "report.html", "a/b/table.csv", "a/b"])
def test_a_folder_with_a_link_out_of_it_is_not_written_to(tmp_path, name):
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine / "a", other):
        folder.mkdir(parents=True)
    (mine / name).parent.mkdir(exist_ok=True)
    (mine / "inside").symlink_to(mine / "a")
    FolderLock(mine).release()
    (mine / name).unlink(missing_ok=True)
    (mine / name).symlink_to(other / "file")
    with pytest.raises(ConfigurationError, match=f"{name} is a link to .*other"):
        FolderLock(mine)
    assert not list(other.iterdir())


def test_the_death_of_a_holder_gives_the_folder_back(tmp_path):
    code = "import sys, os; from fedroster.core.locks import FolderLock; lock = FolderLock(sys.argv[1]); os._exit(3)"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 3
    FolderLock(tmp_path).release()
