"""What the adapter of every training engine needs, and no engine in particular.

When rounds end (:mod:`~fedroster.engine.rules`), what is believed of nodes (:mod:`~fedroster.engine.contexts`), which
replies count (:mod:`~fedroster.engine.replies`), how nodes become a cohort (:mod:`~fedroster.engine.choose`), what the
selector gets (:mod:`~fedroster.engine.outcomes`) and what operators see (:mod:`~fedroster.engine.report`).
"""
