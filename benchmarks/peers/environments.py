"""Environments of the libraries that are compared, made once under ``build/peers``, which git ignores.

Run as ``python -m benchmarks.peers.environments``.  Every library gets one of its own, from the Python index.  PyTorch,
NumPy and fedroster are those of the interpreter that makes them, so that all are compared on the same build.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

FOLDER = Path("build/peers")

LIBRARIES: dict[str, tuple[str, ...]] = {
    "flower": ("flwr[simulation]",),
    "nvflare": ("nvflare",),
    # FedJAX calls what newer versions of JAX lack.
    "fedjax": ("fedjax", "dm-haiku<0.0.13", "jax==0.4.25", "jaxlib==0.4.25", "numpy<2", "scipy<1.13"),
    "pfl": ("pfl",),
    # Its Oort takes NumPy's names over Python's own, which newer versions of NumPy no longer allow.
    "fedscale": ("fedscale", "numpy<2"),
}
"""What is installed for each."""

SECONDS = 600


def python_of(library: str) -> Path:
    """The interpreter of a library's environment.

    Args:
        library: Its name.
    """
    return FOLDER / library / "bin" / "python"


def make(library: str) -> str:
    """Make a library's environment if it is not there.

    Args:
        library: Its name.

    Returns:
        Why it could not be made; empty if it is there.
    """
    folder = FOLDER / library
    done = folder / "installed"
    if done.exists():
        return ""
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, timeout=SECONDS)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        shared = folder / "lib" / version / "site-packages" / "shared.pth"
        shared.write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        install = [str(python_of(library)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        result = subprocess.run(
            [*install, *LIBRARIES[library]], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (subprocess.SubprocessError, OSError) as error:
        return f"not installed: {error}"
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        return f"not installed: {lines[0] if lines else result.stderr[-200:]}"
    done.touch()
    return ""


if __name__ == "__main__":
    for name in LIBRARIES:
        print(f"{name}: {make(name) or 'installed'}")
