"""Whom the server runs as, and what that account can reach.

PostgreSQL refuses to run as root. As root the server runs as the owner of the data, `nobody` where
they are new: no account is made, and no mode of a folder that existed before is changed.
"""

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tocsin.cli.postgres.errors import PostgresError

_NOBODY = 65534
"""The id of `nobody` where the machine has no such name. It serves data that exist; `initdb` wants a name."""


@dataclass(frozen=True, slots=True)
class Account:
    """The server's account. The three last fields are what `subprocess` takes: None = stay who we are."""

    name: str
    user: int | None = None
    group: int | None = None
    extra_groups: Sequence[int] | None = None

    @classmethod
    def of_server(cls, cluster: Path) -> "Account":
        """The account that a server on the data in `cluster` gets when this process starts it."""
        if os.geteuid() != 0:
            return cls(f"uid {os.geteuid()}")
        try:
            owner = cluster.stat()
        except OSError:
            return cls._named("nobody")
        if owner.st_uid == 0:
            return cls._named("nobody")
        return cls(f"uid {owner.st_uid}", owner.st_uid, owner.st_gid, ())

    @classmethod
    def _named(cls, name: str) -> "Account":
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            return cls(f"uid {_NOBODY}", _NOBODY, _NOBODY, ())
        return cls(f"the user {name}", entry.pw_uid, entry.pw_gid, ())

    def run(
        self, command: Sequence[str | Path], *, stdin: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end as this account, from `/` (our own folder may be closed to it)."""
        return subprocess.run(  # noqa: S603 - the server's own programs, and sh
            command,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            cwd="/",
            env=env,
            user=self.user,
            group=self.group,
            extra_groups=self.extra_groups,
        )

    def own(self, path: Path) -> None:
        """Hands `path` over to this account."""
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group, follow_symlinks=False)

    def make_private_folder(self, path: Path) -> None:
        """Makes a new folder that only this account can enter."""
        path.mkdir(mode=0o700)
        self.own(path)

    def can_enter(self, folder: Path) -> bool:
        """Whether this account can enter `folder`. It tries, so that access lists count as for the server."""
        return self.run(["/bin/sh", "-c", 'cd "$1"', "sh", folder]).returncode == 0

    def require_way_to(self, folder: Path) -> None:
        """Checks that this account can enter an existing folder.

        Raises:
            PostgresError: it cannot; says which folder on the way is closed.
        """
        if self.can_enter(folder):
            return
        closed = next(part for part in [*reversed(folder.parents), folder] if not self.can_enter(part))
        if not closed.is_dir():
            raise PostgresError(f"{closed} on the way to the database's data is not a folder")
        raise PostgresError(
            f"the database server runs as {self.name}, which cannot enter {closed} on the way to its data; "
            f"let it pass (chmod o+x '{closed}') or choose a data directory elsewhere"
        )
