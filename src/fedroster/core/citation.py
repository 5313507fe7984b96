"""How this software is cited; CITATION.cff says the same."""

from fedroster.version import __version__

SOFTWARE = f"""@software{{fedroster,
  author  = {{{{fedroster maintainers}}}},
  title   = {{fedroster: client selection for federated learning}},
  version = {{{__version__}}},
  license = {{Apache-2.0}}
}}"""
