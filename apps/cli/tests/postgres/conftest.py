"""The place of one launcher test."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))  # pytest's importlib mode adds no folder itself

from launcher_place import AS_ROOT, PLAIN_UID, Place
from tocsin.cli.postgres import (
    account,
    binaries,
    processes,
    programs,
)


@pytest.fixture(scope="module")
def bin_dir(open_tmp_path: Path) -> Path:
    """The programs, where a plain account can run them too."""
    chosen = Path(os.environ.get("TOCSIN_TEST_POSTGRES_BIN") or binaries())
    plain = account.Account("plain", PLAIN_UID, PLAIN_UID, ()) if AS_ROOT else account.Account("plain")
    return programs.reachable(chosen, programs.version_of(chosen), plain, open_tmp_path / "programs")


@pytest.fixture
def place(open_tmp_path: Path, bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(dir=open_tmp_path))
    sockets = folder / "s"
    sockets.mkdir()
    for made in (folder, sockets):
        made.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(sockets))
    yield Place(folder, sockets, bin_dir)
    left = [process for found in folder.rglob("PG_VERSION") for process in processes.of_cluster(found.parent)]
    assert left == [], "a server is left running"
    assert list(sockets.iterdir()) == [], "a socket folder is left"
