"""Which code made a result: of the whole library, and of one class wherever it lives."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


@cache
def code() -> str:
    """Digest of fedroster's source files: what was run, where the version is the same."""
    folder = Path(__file__).parents[1]
    whole = blake2b(digest_size=5)
    for file in sorted(folder.rglob("*.py")):
        whole.update(f"{file.relative_to(folder).as_posix()}\0".encode())
        whole.update(blake2b(file.read_bytes()).digest())
    return whole.hexdigest()


def code_of(made: Callable[..., Any]) -> dict[str, str]:
    """What a class does, by the modules that say it: a digest of each, and the version of each foreign package.

    These are the modules of the class and of its bases, and those that they import from the same package; for a class
    of fedroster, from the same folder of it; for one that is not installed, from all that lies beside it.  Comments and
    docstrings do not count.
    """
    home = _package(made.__module__)
    found: dict[str, str] = {}
    for base in getattr(made, "__mro__", (made,)):
        package = _package(base.__module__)
        top = package.partition(".")[0]
        if top in sys.stdlib_module_names:
            continue
        if top != "fedroster":
            found[f"{top} (distribution)"] = _version(top)
        if package == home or top == "fedroster":
            _add(base.__module__, package, found)
        if _file(base.__module__) is None:
            found[f"{base.__qualname__} (no file)"] = _compiled(base)
    return found


def _compiled(made: Any) -> str:
    """Digest of a class that no file holds, as in a notebook, and of what it calls in its module."""
    whole = blake2b(digest_size=10)
    seen: set[int] = set()

    def add(value: Any) -> None:
        if id(value) in seen:
            return
        if isinstance(value, CodeType):
            whole.update(value.co_code + repr(value.co_names).encode())
            for constant in value.co_consts:
                add(constant)
        elif isinstance(value, FunctionType):
            seen.add(id(value))
            add(value.__code__)
            for used in (
                *(value.__defaults__ or ()),
                *(value.__globals__.get(name) for name in value.__code__.co_names),
            ):
                add(used)
        elif isinstance(value, property | classmethod | staticmethod):
            add(getattr(value, "fget", None) or getattr(value, "__func__", None))
        elif isinstance(value, type):
            if value.__module__ == made.__module__:
                seen.add(id(value))
                for name, member in vars(value).items():
                    whole.update(name.encode())
                    add(member)
        elif isinstance(value, int | float | str | bytes | tuple | frozenset | None):
            whole.update(repr(value).encode())

    add(made)
    return whole.hexdigest()


def _package(module: str) -> str:
    """How far the modules around a class reach: its top-level package; in fedroster, its folder."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "fedroster" else parts[0]


@cache
def _version(package: str) -> str:
    """Versions of the distributions that a top-level package comes from; empty where it is not installed."""
    found = []
    for name in packages_distributions().get(package, ()):
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return ", ".join(found)


def _add(module: str, package: str, found: dict[str, str]) -> None:
    file = _file(module)
    if file is None or module in found:
        return
    stat = file.stat()
    found[module], imported = _read(module, file, stat.st_mtime_ns, stat.st_size)
    for name in imported:
        if name == package or name.startswith(f"{package}.") or _is_beside(name, package):
            _add(name, package, found)


def _is_beside(module: str, package: str) -> bool:
    """Whether a module lies in the folder of a package, and neither of them is installed or ours."""
    both = {module.partition(".")[0], package.partition(".")[0]}
    if "fedroster" in both or both & sys.stdlib_module_names or any(map(_version, both)):
        return False
    places = {_place(each) for each in both}
    return len(places) == 1 and None not in places


def _place(package: str) -> Path | None:
    """The folder that a top-level module or package lies in."""
    file = _file(package)
    return file and (file.parents[1] if file.name == "__init__.py" else file.parent)


def _file(module: str) -> Path | None:
    """The file of a module; None where there is none, as for an imported name that is no module."""
    loaded = sys.modules.get(module)
    try:
        origin = loaded.__file__ if loaded is not None else getattr(importlib.util.find_spec(module), "origin", None)
    except (AttributeError, ImportError, ValueError):
        return None
    file = Path(origin) if origin else None
    return file if file is not None and file.is_file() else None


@cache
def _read(module: str, file: Path, changed_ns: int, size: int) -> tuple[str, tuple[str, ...]]:
    """Digest of a module, and the names of modules that it may import."""
    content = file.read_bytes()
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # compiled, or half written
        return blake2b(content, digest_size=10).hexdigest(), ()
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    imported = tuple(dict.fromkeys(_imports(tree, package)))
    return blake2b(ast.dump(_WithoutDocstrings().visit(tree)).encode(), digest_size=10).hexdigest(), imported


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            named = node.module or ""
            parent = ".".join(package.split(".")[: 1 - node.level or None]) if node.level else ""
            whole = ".".join(part for part in (parent, named) if part)
            yield whole
            yield from (f"{whole}.{alias.name}" for alias in node.names)


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> Any:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return ast.Pass() if is_text else node
