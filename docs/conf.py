"""Sphinx configuration: MyST pages and notebooks, docstrings in Google style, Furo.

Nothing is fetched while building, or by a reader's browser.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import typer.main
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fedroster import __version__
from fedroster.cli import app as command_line

project = "fedroster"
author = "fedroster maintainers"
project_copyright = "fedroster maintainers, Apache-2.0"
release = version = __version__

sys.path.insert(0, str(Path(__file__).parent))
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "decision_tree"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
suppress_warnings = ["toc.empty_glob"]  # docs/reproduction/ is written by `fedroster reproduce`

# Notebooks run while the pages are built; a cell that raises ends the build.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds for a cell; on a quiet machine the longest takes ten
nb_merge_streams = True
nb_render_image_options = {"alt": "what the code above draws"}

# MathJax 3 sets formulae in the reader's browser. Its one file comes from a Python package: it needs no network.
html_static_path = ["pages.css", str(files("sphinx-mathjax-offline") / "static" / "mathjax" / "tex-svg.js")]
html_css_files = ["pages.css"]
mathjax_path = "tex-svg.js"

autoclass_content = "both"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["flwr", "nvflare", "pfl"]  # extras that the environment of the docs does not have
autodoc_typehints = "signature"
autodoc_type_aliases = {
    name: name
    for name in (
        "AnyEnvironment",
        "AnyPolicy",
        "ArrayLike",
        "BoolArray",
        "FloatArray",
        "ImageArray",
        "IntArray",
        "Runs",
        "StatusArray",
    )
}
autodoc_default_options = {"members": True}
maximum_signature_line_length = 100
python_use_unqualified_type_names = True
add_module_names = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False

html_theme = "furo"
html_title = f"fedroster {release}"
html_copy_source = False


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its full name, those of groups after the group itself."""
    for name, command in group.commands.items():
        yield prefix + name, command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")


class CommandLine(SphinxDirective):
    """Lists the options of every command, read from the program itself."""

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        for name, command in _commands(typer.main.get_command(command_line)):
            lines += [f"## `fedroster {name}`", "", command.help or "", ""]
            if command.params:
                lines += ["| | what | default |", "| --- | --- | --- |"]
            for parameter in command.params:
                is_option = parameter.param_type_name == "option"
                shown = ", ".join(parameter.opts) if is_option else parameter.name.upper()
                shown += f" {parameter.metavar}" if is_option and parameter.metavar else ""
                default = "" if parameter.default in (None, False) else f"`{parameter.default}`"
                lines.append(f"| `{shown}` | {parameter.help or ''} | {default} |")
            lines.append("")
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def _plain_text(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep reStructuredText from reading "N." as a list and "O(N |S|)" as a substitution."""
    for number, line in enumerate(lines):
        line = re.sub(r"^(:\w+ [^:]+: |\s+)(\w\.)$", r"\1\\\2", line)
        lines[number] = line if "`" in line else line.replace("O(N |S|)", ":math:`O(N |S|)`")


def _plain_types(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, result: str | None
) -> tuple[str | None, str | None]:
    """Write aliases inside unions by their name, and types without the ranges that the text says."""

    def plain(text: str | None) -> str | None:
        text = text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text)
        return text and re.sub(r"Annotated\[(\w+), Range\([^)]*\)\]", r"\1", text)

    return plain(signature), plain(result)


def _short_values(app: Sphinx, domain: str, kind: str, content: addnodes.desc_content) -> None:
    """Leave out the values of large tables."""
    for part in list(content.parent[0].findall(addnodes.desc_annotation)):
        if len(part.astext()) > 120:
            part.parent.remove(part)


def _for_readers(app: Sphinx, name: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Give what scrolls a focus, captions a level, and parameters of a signature their role, for screen readers."""
    if body := context.get("body"):
        body = re.sub(
            r'<pre>|<div class="table-wrapper[^>]*(?=>)', lambda found: f'{found[0].rstrip(">")} tabindex="0"', body
        )
        body = re.sub(r'(<pre tabindex="0")(?!>)', r"\1>", body)
        context["body"] = re.sub(r"<dl>\s*(?=<dd><em class=.sig-param)", '<dl role="presentation">', body)
    for part in ("furo_navigation_tree", "toc"):
        if context.get(part):
            context[part] = context[part].replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what is defined here."""
    app.add_directive("command-line", CommandLine)
    app.connect("autodoc-process-docstring", _plain_text, priority=900)
    app.connect("autodoc-process-signature", _plain_types)
    app.connect("object-description-transform", _short_values)
    app.connect("html-page-context", _for_readers, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
