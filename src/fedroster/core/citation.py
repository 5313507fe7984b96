"""How this software is cited; CITATION.cff says the same."""

SOFTWARE = """@software{fedroster,
  author  = {{fedroster maintainers}},
  title   = {fedroster: client selection for federated learning},
  version = {0.1.0},
  license = {Apache-2.0}
}"""
