"""No module of fedroster touches a private attribute of another one's object."""

import ast
from collections.abc import Iterator
from pathlib import Path

import fedroster

ROOT = Path(fedroster.__file__).parent

FOREIGN = {
    "_replace",  # of a named tuple: public, whatever its name looks like
    "_exit",  # os: the end of a worker without its parent's cleaning up
    "_ConvNd",  # torch: what is common to convolutions
    "_DropoutNd",
    "_forward_hooks",  # torch: a module with hooks does more than its class says
    "_forward_pre_hooks",
}
"""Private names of other packages, and why they are used."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(tree: ast.Module) -> set[str]:
    """Private names that a module defines: methods, attributes of its classes and names at its top."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return names


def touched(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Private attributes of anything that is not defined in the module itself."""
    own = own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr) and node.attr not in own:
            yield node.lineno, node.attr
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedroster"):
            yield from ((node.lineno, alias.name) for alias in node.names if private(alias.name))


def test_no_module_touches_a_private_attribute_of_another():
    found = [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for file in sorted(ROOT.rglob("*.py"))
        for line, name in touched(ast.parse(file.read_text(encoding="utf-8")))
        if name not in FOREIGN
    ]
    assert not found


def test_what_is_touched_is_found():
    code = "from fedroster.selector import _log\ndef f(selector): return selector._learner, selector.__class__"
    assert [name for _, name in touched(ast.parse(code))] == ["_log", "_learner"]
