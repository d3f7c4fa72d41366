"""The port between the engine, which decides what runs, and the executor, which calls."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from tocsin.common.store.rows import Begun, Completion, Pending, Task


@dataclass(frozen=True, slots=True)
class Order:
    """A run to call at its due instant.

    `begin_sent` is the monotonic instant at which its begin was sent: what was read of the task then
    may be trusted for 250 ms after it (rule 3).
    """

    run: Begun
    task: Task
    secrets: tuple[str, ...]
    begin_sent: float


class Calls(Protocol):
    """The executor, as the engine sees it."""

    def submit(self, order: Order) -> None:
        """Takes a begun run; its call starts when its due instant has come on the database's clock."""
        ...

    def expect(self, due_at: datetime, task: Task) -> None:
        """A run of this task will be due then, within seconds, if nothing comes between: a hint, to prepare for it."""
        ...

    def put_back(self, run: Begun) -> None:
        """Returns a begun run that is not to be called, as soon as the database takes it."""
        ...

    def abort(self, run_id: UUID) -> None:
        """Ends the call of a cancelled run; its completion writes the state. Unknown ids are ignored."""
        ...

    def backlog(self) -> int:
        """Results that are not yet committed."""
        ...


class Listener(Protocol):
    """The engine, as the executor sees it."""

    def started(self, run: Begun) -> None:
        """The call's first byte is about to be written."""
        ...

    def released(self, run: Begun, completion: Completion | None, again: Pending | None) -> None:
        """The run is no longer in flight: its result is committed, or it was put back (`completion` None).

        `again` is the row by which it came back to `pending`, if it did.
        """
        ...
