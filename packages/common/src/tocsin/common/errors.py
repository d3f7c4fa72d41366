"""Errors that cross a module's border, each with what its reader needs to act."""

from uuid import UUID


class TocsinError(Exception):
    """Whatever Tocsin itself refuses or finds broken; its text is one sentence for a person."""


class FieldError(TocsinError):
    """A value that a person gave breaks a rule.

    `field` is the path as the API names it (`schedule.cron`), `rule` one sentence that says what is allowed.
    """

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


class LeaseLostError(TocsinError):
    """This process's lease has ended: whatever it holds must be dropped and a new lease taken."""

    def __init__(self, lease_id: UUID) -> None:
        super().__init__(f"lease {lease_id} has ended")
        self.lease_id = lease_id


class StoreUnavailableError(TocsinError):
    """The database did not answer, or refused for a passing reason; what was asked did not take effect."""


class OutcomeUnknownError(StoreUnavailableError):
    """The connection broke while a statement was under way: it may or may not have committed."""


class RowRefusedError(TocsinError):
    """The store cannot hold a value of some row of a batch; nothing of the batch took effect."""


class NotFoundError(TocsinError):
    """No such thing, for this tenant."""


class ConflictError(TocsinError):
    """The thing exists, and its state does not allow this."""


class FaultyDefinitionError(TocsinError):
    """A stored task cannot be read or planned; it marks that one task and stops nobody else."""

    def __init__(self, task_id: UUID, reason: str) -> None:
        super().__init__(f"task {task_id}: {reason}")
        self.task_id = task_id
        self.reason = reason
