"""Small files in the data directory."""

import contextlib
from pathlib import Path

from tocsin.cli.postgres.cluster import write_private

__all__ = ["read_text", "write_private"]


def read_text(path: Path) -> str:
    """What a small file holds, without blanks around it; nothing where there is no such file."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    return ""
