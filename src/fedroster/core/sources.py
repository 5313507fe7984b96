"""Which code made a result: of the whole library, and of one class wherever it lives."""

from __future__ import annotations

import importlib.util
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any


def code() -> str:
    """Digest of fedroster's source files: what was run, where the version is the same."""
    return _digest(Path(__file__).parents[1])[:10]


def code_of(made: Callable[..., Any]) -> dict[str, str]:
    """What a class does: digests of the modules around it and its bases, and the version of each foreign package.

    Around a class are the modules of its package; in fedroster, of its folder; for a file that is not installed, all
    that lie beside it.  A class that no file holds, as in a notebook, is another one whenever it is made.
    """
    home = made.__module__.partition(".")[0]
    found: dict[str, str] = {}
    for base in getattr(made, "__mro__", (made,)):
        top = base.__module__.partition(".")[0]
        if top in sys.stdlib_module_names:
            continue
        if top != "fedroster":
            found[f"{top} (distribution)"] = _version(top)
        file = _file(base.__module__)
        if file is None:
            found[f"{base.__qualname__} (no file)"] = _new(base)
        elif top in (home, "fedroster"):
            package = base.__module__.rpartition(".")[0] if top == "fedroster" else top
            found[package] = _around(package, file)
    return found


@cache
def _new(made: object) -> str:
    return secrets.token_hex(10)


def _around(package: str, file: Path) -> str:
    """Digest of the package that a file belongs to; of a file without one, itself if it is installed, or its folder."""
    origin = _file(package)
    if origin is not None and origin.name == "__init__.py":
        return _digest(origin.parent)
    return _digest(file.parent, file.name if _version(package) else "*.py")


def _digest(folder: Path, names: str = "**/*.py") -> str:
    """Digest of names and content of files."""
    files = sorted(folder.glob(names))
    return _read(folder, tuple((file, file.stat().st_mtime_ns) for file in files))


@lru_cache(maxsize=256)
def _read(folder: Path, files: tuple[tuple[Path, int], ...]) -> str:
    whole = blake2b(digest_size=10)
    for file, _changed_ns in files:
        whole.update(f"{file.relative_to(folder).as_posix()}\0".encode())
        whole.update(blake2b(file.read_bytes()).digest())
    return whole.hexdigest()


@cache
def _version(package: str) -> str:
    """Versions of the distributions that a top-level package comes from; empty where it is not installed."""
    found = []
    for name in packages_distributions().get(package, ()):
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return ", ".join(found)


def _file(module: str) -> Path | None:
    """The file of a module; None where there is none."""
    loaded = sys.modules.get(module)
    try:
        origin = loaded.__file__ if loaded is not None else getattr(importlib.util.find_spec(module), "origin", None)
    except (AttributeError, ImportError, ValueError):
        return None
    file = Path(origin) if origin else None
    return file if file is not None and file.is_file() else None
