"""One look at a queue, and where the queue is to be read on after it. Pure: the statements are the reader's."""

from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from uuid import UUID

from tocsin.common.models import Priority
from tocsin.common.store.rows import FIRST_RUN, Pending, QueuePage
from tocsin.engine.board import Board
from tocsin.engine.endpoints import QueueKey
from tocsin.engine.tenant import PAGE, Queue, RowKey, TenantScheduler, key_of

Look = tuple[QueuePage, ...]
"""A page for each range of lanes that is served, alike but for these."""

START: RowKey = (datetime.min.replace(tzinfo=UTC), FIRST_RUN)
"""Before every row."""


def queues_of(board: Board, tenant_ids: Iterable[UUID]) -> list[QueueKey]:
    """The queues of those of these tenants that are owned, the most urgent of all of them first."""
    owned = [tenant_id for tenant_id in tenant_ids if tenant_id in board.tenants]
    return [(tenant_id, int(priority)) for priority in Priority for tenant_id in owned]


def low(board: Board) -> list[QueueKey]:
    """Queues that go on in the database and of which memory holds less than half a page."""
    return [
        (scheduler.tenant_id, priority)
        for scheduler in board.tenants.values()
        for priority, queue in scheduler.queues.items()
        if queue.cursor is not None and len(queue) < PAGE // 2
    ]


def behind(board: Board) -> Iterator[tuple[QueueKey, str]]:
    """The queues of which rows were left that are to be read now, and of which endpoint: one of a queue a round."""
    for scheduler in board.tenants.values():
        for priority, queue in scheduler.queues.items():
            if queue.left and len(queue) < PAGE // 2:
                key = (scheduler.tenant_id, priority)
                # what was read goes to the end, so that all have their turn
                endpoint = next((endpoint for endpoint in queue.left if board.wants(key, endpoint)), None)
                if endpoint is not None:
                    yield key, endpoint


def by_queue(rows: Iterable[Pending]) -> dict[QueueKey, list[Pending]]:
    """What a statement of several looks has found, each queue's in its order."""
    found: dict[QueueKey, list[Pending]] = {}
    for row in rows:
        found.setdefault((row.tenant_id, int(row.priority)), []).append(row)
    return found


def batches(looks: Iterable[Look | None], most: int) -> Iterator[list[Look]]:
    """These looks, of `most` rows at most together, or one alone."""
    together: list[Look] = []
    rows = 0
    for look in looks:
        if look is None:
            continue
        wanted = sum(page.limit for page in look)
        if together and rows + wanted > most:
            yield together
            together, rows = [], 0
        together.append(look)
        rows += wanted
    if together:
        yield together


def queue_of(look: Look) -> QueueKey:
    """The queue that is looked at."""
    return look[0].tenant_id, int(look[0].priority)


def start_of(look: Look) -> RowKey:
    """The key after which it begins."""
    return look[0].from_due or START[0], look[0].from_run


def all_from(queue: Queue) -> RowKey:
    """Where a look at all of a queue begins: where the last one ended, while rows are left in the database."""
    return (queue.looked if queue.left else None) or START


def begin_all(queue: Queue, margin: datetime) -> RowKey:
    """Where a look at all of a queue begins. The first one says where the last is to end: later rows may come faster
    than looks pass them, and those up to the margin of the day have looks of their own."""
    if (start := all_from(queue)) == START:
        queue.look_until = margin
    return start


def move_on(queue: Queue, start: RowKey, more: RowKey | None, last: RowKey, *, found_new: bool) -> None:
    """Brings a queue's keys to a page that began at `start`: behind `more` there may be others, None: there are none.

    While rows are left, what stands before the cursor is not all known: a page before it moves nothing back to its
    end, and one ahead of it passes nothing over.
    """
    if start == all_from(queue):
        over = more is None or (queue.look_until is not None and more[0] >= queue.look_until)
        queue.looked = None if over else more
    if queue.left:
        if queue.cursor is not None and start > queue.cursor:
            return
        frontier = queue.cursor or queue.reached
        more = more if more is None or frontier is None or start >= frontier else max(more, frontier)
    elif more is not None and not found_new and queue.cursor is not None:
        # a page of known rows only says nothing of those behind it: going back to its end could go on for ever
        more = max(more, queue.cursor)
    queue.cursor = more
    if more is None:
        queue.reached = last if queue.reached is None else max(last, queue.reached)


def ahead(queue: Queue, key: RowKey) -> bool:
    """Whether rows behind this key stand before where the queue is read on."""
    return queue.cursor is None or key < queue.cursor


def from_margin(look: Look) -> bool:
    """Whether it begins at an instant, neither at a row nor before every one."""
    return start_of(look)[1] == FIRST_RUN and start_of(look) != START


class Laps:
    """The looks from the margin that were full, each to be followed up to where its queue is read on.

    A key of their own for each queue: while rows are left, these looks move no cursor back. One that was full while a
    lap was under way has its own after that: what it was made for may stand where the lap has been.
    """

    def __init__(self) -> None:
        self._at: dict[QueueKey, RowKey] = {}
        self._next: dict[QueueKey, RowKey] = {}

    def __iter__(self) -> Iterator[tuple[QueueKey, RowKey]]:
        """Where each goes on, that which was moved longest ago first."""
        return iter(self._at.items())

    def begin(self, key: QueueKey, after: RowKey) -> None:
        if key in self._at:
            self._next[key] = min(after, self._next.get(key, after))
        else:
            self._at[key] = after

    def move(self, key: QueueKey, to: RowKey | None) -> None:
        """Up to this key it was looked; None: to the end."""
        del self._at[key]
        to = to or self._next.pop(key, None)
        if to is not None:
            self._at[key] = to

    def keep(self, tenant_ids: Container[UUID]) -> None:
        """Forgets all but these tenants'."""
        for laps in (self._at, self._next):
            for key in [key for key in laps if key[0] not in tenant_ids]:
                del laps[key]


def look_of(
    scheduler: TenantScheduler, key: QueueKey, limit: int, from_due: datetime, from_run: UUID = FIRST_RUN
) -> Look:
    """A look at a queue, of at most `limit` rows a range of lanes, after a key."""
    return tuple(
        QueuePage(key[0], Priority(key[1]), first, last, limit, from_due, from_run) for first, last in scheduler.lanes
    )


def in_order(look: Look, rows: Sequence[Pending]) -> tuple[Sequence[Pending], bool]:
    """The rows of one look in queue order, as far as all of its pages reach, and whether there may be more of them."""
    if len(look) == 1:
        return rows, len(rows) >= look[0].limit
    ends: list[RowKey] = []
    for page in look:
        of_page = [key_of(row) for row in rows if page.lane_first <= row.lane < page.lane_last]
        if len(of_page) >= page.limit:
            ends.append(of_page[-1])
    end = min(ends, default=None)
    return sorted((row for row in rows if end is None or key_of(row) <= end), key=key_of), bool(ends)
