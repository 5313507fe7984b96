"""The lists of pinned packages: whole, in step with pyproject.toml, and of no place in particular."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

HOME = Path(__file__).parents[1]
FOLDER = HOME / "requirements"
LISTS = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt")}
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pinned(name: str) -> dict[str, list[Requirement]]:
    """The versions of each package of a list; several where each is for its own Pythons."""
    found: dict[str, list[Requirement]] = {}
    for line in re.findall(r"^\w.*?(?= \\$)", LISTS[name], re.MULTILINE):
        found.setdefault(Requirement(line).name, []).append(Requirement(line))
    return found


def asked(*extras: str) -> list[Requirement]:
    """What the project asks for with some extras, which may contain others."""
    found = [Requirement(line) for line in PROJECT["dependencies"]]
    for extra in extras:
        for line in PROJECT["optional-dependencies"][extra]:
            one = Requirement(line)
            found += asked(*one.extras) if one.name == "fedroster" else [one]
    return found


@pytest.mark.parametrize("name", LISTS)
def test_every_package_has_hashes_and_no_address(name):
    text = LISTS[name]
    assert not re.search(r"://|^-|\bfile:|@ ", text, re.MULTILINE)
    blocks = re.findall(r"^\w.*\n(?: .*\n)*", text, re.MULTILINE)
    assert "".join(blocks) == text
    assert all(re.match(r"\S+==\S+( ;.*)? \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+$", block) for block in blocks)
    assert len(blocks) == sum(map(len, pinned(name).values()))


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("demo", ["study"]),
        ("dev", ["dev"]),
        ("flower-oldest", ["flower"]),
        ("flower-newest", ["flower"]),
        ("nvflare", ["nvflare"]),
        ("pfl", ["pfl"]),
    ],
)
def test_the_lists_are_in_step_with_the_project(name, extras):
    versions = pinned(name)
    for one in asked(*extras):
        found = versions.get(one.name, [])
        assert found, f"{name}.txt lacks {one}: run requirements/lock"
        for pin in found:
            (version,) = pin.specifier
            assert one.specifier.contains(version.version), f"{name}.txt has {pin}, not {one}: run requirements/lock"


def test_the_demo_and_the_tests_have_the_same_versions_and_the_demo_no_pytorch():
    demo, dev = pinned("demo"), pinned("dev")
    assert all(
        [str(pin.specifier) for pin in pins] == [str(pin.specifier) for pin in dev[name]] for name, pins in demo.items()
    )
    assert "torch" not in demo


def test_nvidia_s_libraries_stand_alone():
    kinds = re.compile("nvidia|cuda|triton")
    assert all(map(kinds.match, pinned("nvidia")))
    for name in ("dev", "pfl"):
        assert not any(map(kinds.match, pinned(name)))


def test_both_builds_of_pytorch_are_known():
    """The index has a file for each Python and system; those for processors alone are named beside."""
    ours = [line.split()[1] for line in (FOLDER / "cpu.hashes").read_text(encoding="utf-8").splitlines()]
    for name in ("dev", "pfl"):
        block = re.search(r"^torch==.*\n(?: .*\n)*", LISTS[name], re.MULTILINE)
        assert block is not None
        assert all(f"--hash={value}" in block[0] for value in ours)
        assert block[0].count("--hash=") > len(ours) + 4 * 4  # Python 3.11 to 3.14; two Linuxes, macOS, Windows


def test_the_lists_hold_for_the_oldest_python_of_each_kind():
    """A package that wants a later 3.11 has a second version for the earlier ones: Debian 12 has 3.11.2."""
    for name in LISTS:
        for pins in pinned(name).values():
            environments = [
                {"python_full_version": f"3.{minor}.0", "python_version": f"3.{minor}"} for minor in (11, 12, 13, 14)
            ]
            for environment in environments:
                assert sum(pin.marker is None or pin.marker.evaluate(environment) for pin in pins) <= 1
