"""A Sphinx directive that draws a list of questions as a decision tree, narrow enough for a phone."""

from __future__ import annotations

from html import escape

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

WIDTH, LEFT, RIGHT, ROW = 372, 178, 146, 84
"""Width of the picture, of the questions' column and of the answers', and height of a row."""


class DecisionTree(SphinxDirective):
    """Draws lines ``question -> answer``; a line without an arrow is the answer if all questions are denied.

    ``|`` breaks a line.  Colours are in ``pages.css``.
    """

    has_content = True
    required_arguments = 1  # what the picture shows, for those who cannot see it
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        parts: list[str] = []
        for row, line in enumerate(self.content):
            question, arrow, answer = (part.strip() for part in line.partition("->"))
            top, middle = row * ROW + 4, row * ROW + 4 + 30
            if not arrow:
                parts.append(_box(1, top, LEFT, question, "answer"))
                break
            parts += [_box(1, top, LEFT, question, "question"), _box(WIDTH - RIGHT - 1, top, RIGHT, answer, "answer")]
            parts.append(_arrow(LEFT + 1, middle, WIDTH - RIGHT - 3, middle, "yes", LEFT + 22, middle - 5))
            parts.append(_arrow(LEFT // 2, top + 60, LEFT // 2, top + ROW - 2, "no", LEFT // 2 + 16, top + 75))
        height = len(self.content) * ROW - 14
        label = escape(self.arguments[0], quote=True)
        svg = f'<svg class="decision-tree" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">'
        return [nodes.raw("", svg + "".join(parts) + "</svg>", format="html")]


def _box(x: int, y: int, width: int, text: str, kind: str) -> str:
    lines = [part.strip() for part in text.split("|")]
    first = y + 30 - 8 * (len(lines) - 1) + 4
    weights = [' font-weight="bold"' if kind == "answer" else "", *[""] * len(lines)]
    spans = "".join(
        f'<tspan x="{x + width / 2}" y="{first + 16 * number}"{weights[number]}>{escape(line)}</tspan>'
        for number, line in enumerate(lines)
    )
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="60" rx="8"/><text>{spans}</text>'


def _arrow(x: int, y: int, to_x: int, to_y: int, label: str, label_x: int, label_y: int) -> str:
    if y == to_y:
        head = f"{to_x},{to_y} {to_x - 7},{to_y - 4} {to_x - 7},{to_y + 4}"
    else:
        head = f"{to_x},{to_y} {to_x - 4},{to_y - 7} {to_x + 4},{to_y - 7}"
    line = f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}"/><polygon points="{head}"/>'
    return f'{line}<text x="{label_x}" y="{label_y}">{label}</text>'


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("decision-tree", DecisionTree)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
