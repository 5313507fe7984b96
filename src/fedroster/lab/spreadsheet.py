"""Tables as CSV."""

from __future__ import annotations

import io

import polars as pl

from fedroster.parts import cell


def as_csv(table: pl.DataFrame) -> bytes:
    """A table as CSV; floats are written so that reading gives them back exactly, and no text is a formula."""
    content = io.BytesIO()
    texts = pl.selectors.string()
    table.with_columns(texts.map_elements(cell, return_dtype=pl.String)).write_csv(content)
    return content.getvalue()
