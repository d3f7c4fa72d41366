"""Named crash points: before and after every commit and every call a test may end or fail the process.

In production no handler is set, and `reach` is one attribute look-up.
"""

from collections.abc import Callable
from typing import Final

POINTS: Final = frozenset(
    {
        "begin.before",
        "begin.after",
        "call.before",
        "call.after",
        "complete.before",
        "complete.after",
        "put_back.before",
        "put_back.after",
        "give_back.before",
        "give_back.after",
        "beat.before",
        "beat.after",
        "judge.before",
        "judge.after",
        "expire.before",
        "expire.after",
        "leave.before",
        "leave.after",
        "take_shards.before",
        "take_shards.after",
        "give_shards.before",
        "give_shards.after",
        "move_tenant.before",
        "move_tenant.after",
        "ask_move.before",
        "ask_move.after",
        "move_unowned.before",
        "move_unowned.after",
        "cancel_of_tasks.before",
        "cancel_of_tasks.after",
        "mark_faulty.before",
        "mark_faulty.after",
        "api.write.before",
        "api.write.after",
    }
)

_handler: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Says that execution has come to `point`; the handler, if one is set, may not return."""
    if _handler is not None:
        _handler(point)


def set_handler(handler: Callable[[str], None] | None) -> None:
    """Test-only: what happens at a point. `None` restores production."""
    global _handler  # noqa: PLW0603 - one process, one seam
    _handler = handler
