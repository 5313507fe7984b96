"""How papers and this software are cited; CITATION.cff says the same."""

from __future__ import annotations

import re

from fedroster.version import __version__

SOFTWARE = f"""@software{{fedroster,
  author  = {{{{fedroster maintainers}}}},
  title   = {{fedroster: client selection for federated learning}},
  version = {{{__version__}}},
  license = {{Apache-2.0}}
}}"""


def in_short(bibtex: str) -> str:
    """Authors, year and link of a paper, from its BibTeX; "fedroster" for this software, empty for no BibTeX."""
    if not bibtex or bibtex == SOFTWARE:
        return bibtex and "fedroster"
    found = re.findall(r"(\w+)\s*=\s*[{\"](.*?)[}\"],?\s*(?:\n|$)", bibtex, re.DOTALL)
    fields = {name.lower(): re.sub(r"\\.|[{}\"]", "", " ".join(value.split())) for name, value in found}
    names = [author.partition(",")[0] for author in fields.get("author", "").split(" and ")]
    who = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
    links = (f"{kind}:{fields[name]}" for name, kind in (("doi", "doi"), ("eprint", "arXiv")) if name in fields)
    return ", ".join(filter(None, (f"{who} {fields.get('year', '')}".strip(), next(links, ""))))
