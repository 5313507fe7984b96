"""Runs the Python examples of Markdown files: ``python docs/run_examples.py README.md docs``.

The blocks of a page run in order, in one namespace and in an empty folder.  Blocks that define a test class are also
handed to pytest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(page: Path, containing: str = "") -> str:
    """The Python blocks of a page, each at its own line so that a traceback points to the page."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block in _BLOCK.finditer(text):
        if containing not in block.group(1):
            continue
        start = text.count("\n", 0, block.start(1))
        for offset, line in enumerate(block.group(1).splitlines()):
            lines[start + offset] = line
    return "\n".join(lines) + "\n"


def run(page: Path) -> bool:
    """Run one page's examples; whether they passed."""
    code = examples(page)
    if not code.strip():
        return True
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "example.py").write_text(code, encoding="utf-8")
        commands = [[sys.executable, "-W", "error", "example.py"]]
        tests = examples(page, containing="\nclass Test")
        if tests.strip():
            (Path(folder) / "test_example.py").write_text(tests, encoding="utf-8")
            commands.append([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_example.py"])
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        for command in commands:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PATH": path}, check=False
            )
            if done.returncode:
                print(f"{page}: failed\n{done.stdout}{done.stderr}")
                return False
    print(f"{page}: passed")
    return True


def main() -> None:
    """Run the examples of the files and folders that are named."""
    pages: list[Path] = []
    for name in sys.argv[1:]:
        path = Path(name)
        pages += [path] if path.is_file() else sorted(path.rglob("*.md"))
    passed = [run(page.resolve()) for page in pages if "_build" not in page.parts]  # all, even after a failure
    raise SystemExit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
