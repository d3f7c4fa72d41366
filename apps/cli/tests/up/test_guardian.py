"""What cleans up after a killed `up`: it ends that one's server, and nobody else's."""

import subprocess
import sys
from pathlib import Path

import pytest

from tocsin.cli.postgres import EmbeddedPostgres, throwaway_settings

BLIND = "import os; guardian.take_lock = lambda _: os.open(os.devnull, os.O_RDONLY);"
MAIN = """
import sys
from pathlib import Path
from tocsin.cli.up import guardian
{twin}
guardian.main("no such up", Path(sys.argv[1]), Path(sys.argv[2]))
"""


def check_is_left_alone(home: Path, twin: str = "") -> None:
    """Starts a server as a new `up` does, and lets the guardian of one before it go."""
    data_dir = home / f"new {len(twin)}"
    with EmbeddedPostgres(data_dir, settings=throwaway_settings()) as server:
        arguments = [str(data_dir / "cluster"), str(home / "no such folder")]
        guardian = subprocess.run(
            [sys.executable, "-c", MAIN.format(twin=twin), *arguments],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        assert (guardian.returncode, guardian.stdout) == (0, b'{"event": "ready"}\n'), guardian.stderr
        assert server.running, "it was shut down"


def test_the_guardian_of_a_killed_up_leaves_the_next_ones_server_alone(home: Path) -> None:
    check_is_left_alone(home)


def test_one_that_does_not_ask_whose_the_data_are_is_caught(home: Path) -> None:
    with pytest.raises(AssertionError, match="shut down"):
        check_is_left_alone(home, BLIND)


def test_where_up_ran_no_server_the_folder_alone_is_removed(tmp_path: Path) -> None:
    """As with a database of the operator's."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    command = [sys.executable, "-m", "tocsin.cli.up.guardian", "no such up", "", str(folder)]
    said = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, cwd=tmp_path)
    assert (said.stderr, folder.exists(), tmp_path.exists()) == (b"", False, True)
