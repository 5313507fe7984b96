"""Sphinx configuration: MyST pages, docstrings in Google style, Furo; nothing is fetched while building."""

from __future__ import annotations

import typer.main
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fedroster import __version__
from fedroster.cli import app as command_line

project = "fedroster"
author = "fedroster maintainers"
project_copyright = "fedroster maintainers, Apache-2.0"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
# Formulae are set by MathJax in the reader's browser; without a network they show as their TeX source.
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "run_examples.py"]
suppress_warnings = ["toc.empty_glob"]  # docs/reproduction/ is written by `fedroster reproduce`

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_default_options = {"members": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
add_module_names = False

html_theme = "furo"
html_title = f"fedroster {release}"
html_copy_source = False


class CommandLine(SphinxDirective):
    """Lists the options of every command, read from the program itself."""

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        for name, command in typer.main.get_command(command_line).commands.items():
            lines += [f"## `fedroster {name}`", "", command.help or "", ""]
            lines += ["| | what | default |", "| --- | --- | --- |"]
            for parameter in command.params:
                is_option = parameter.param_type_name == "option"
                shown = ", ".join(parameter.opts) if is_option else parameter.name.upper()
                shown += f" {parameter.metavar}" if is_option and parameter.metavar else ""
                default = "" if parameter.default in (None, False) else f"`{parameter.default}`"
                lines.append(f"| `{shown}` | {parameter.help or ''} | {default} |")
            lines.append("")
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
