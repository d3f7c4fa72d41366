"""Read by every Python process under a Ray head that the crash matrix starts: its crash points ask the harness.

Nothing is connected before the first crash point: most of these processes are Ray's own.
"""

import os

from tocsin.common.crashpoints import set_handler


def _first(point: str) -> None:
    from property_tests.crash_matrix.launcher import Handler

    asking = frozenset(os.environ["CRASH_MATRIX_ASKS"].split(","))
    handler = Handler(int(os.environ["CRASH_MATRIX_PORT"]), f"ray {os.getpid()}", asking)
    set_handler(handler)
    handler(point)


if "CRASH_MATRIX_PORT" in os.environ:
    set_handler(_first)
