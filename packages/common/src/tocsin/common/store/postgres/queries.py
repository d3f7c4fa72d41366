"""The named SQL files: each one statement, with its parameters, index and reason in its header."""

from functools import cache
from importlib.resources import files


@cache
def query(name: str) -> str:
    """The text of `sql/<name>.sql`.

    Raises:
        FileNotFoundError: there is no such statement.
    """
    return (files(__package__) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
