"""Chaos: the whole product under load while it is broken on purpose, judged from two ledgers.

`python -m property_tests.chaos --minutes N --rate R --seed S`; `docs/testing.md` says what it can and cannot prove.
"""
