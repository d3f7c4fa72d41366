"""What a person is told when the embedded server cannot run."""

from tocsin.common.errors import TocsinError


class PostgresError(TocsinError):
    """The embedded PostgreSQL cannot be started; the text is one sentence that says why and what to do."""


class ForeignServerError(PostgresError):
    """A PostgreSQL that Tocsin did not start runs on the data."""
