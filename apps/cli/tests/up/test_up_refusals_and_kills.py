"""`tocsin up` where it cannot start, and where it is not let stop: nothing is left running in any case.

None of these waits for Ray to be up.
"""

import signal
from pathlib import Path

import psutil
import pytest

from tocsin.cli.up.processes import started_by
from up_process import (
    CLOCK,
    STOP_SECONDS,
    UpProcess,
    eventually,
    keeper_of,
    nothing_left,
    plain_account,
    uses_a_given_database,
)

GUARDIAN_SECONDS = 20.0

pytestmark = pytest.mark.timeout(120)


def test_data_of_another_postgresql_are_refused(home: Path) -> None:
    data_dir = home / "old data"
    (data_dir / "cluster").mkdir(parents=True)
    (data_dir / "cluster" / "PG_VERSION").write_text("12\n")
    (data_dir / "password").write_text("secret\n")
    with nothing_left(data_dir) as started:
        up = UpProcess(data_dir)
        started.append(up)
        assert up.ended(60.0) == 1
    assert len(up.lines) == 1
    assert up.lines[0].startswith(f"tocsin: the data in {data_dir}/cluster are of PostgreSQL 12")


def test_one_port_for_two_is_refused(home: Path) -> None:
    up = UpProcess(home / "one port", port=9, dashboard_port=9)
    assert up.ended(60.0) == 1
    assert up.lines == ["tocsin: the API and Ray's dashboard cannot both have port 9"]
    assert not (home / "one port").exists()


def test_sigterm_while_it_starts_ends_with_0(home: Path) -> None:
    with nothing_left(home / "early") as started:
        up = UpProcess(home / "early")
        started.append(up)
        keeper_of(up)
        with pytest.raises(AssertionError, match="it has started a server"):
            uses_a_given_database(up)
        up.signal(signal.SIGTERM)
        assert up.ended(STOP_SECONDS) == 0


def test_a_kill_of_up_leaves_nothing_running(home: Path) -> None:
    """As a plain user where we are root. The data stay good: the next start finds them."""
    data_dir = home / "plain user's" / "data"
    account = plain_account()
    with nothing_left(data_dir, GUARDIAN_SECONDS) as started:
        up = UpProcess(data_dir, account=account, HOME="/nonexistent")
        started.append(up)
        keeper_of(up)
        assert up.ask("select count(*) from placements") == 1
        up.signal(signal.SIGKILL)
        assert up.ended(STOP_SECONDS) == -signal.SIGKILL
    assert not (data_dir / "cluster" / "postmaster.pid").exists(), "the server was not shut down"


def test_a_second_signal_kills_what_does_not_stop(home: Path) -> None:
    with nothing_left(home / "stubborn") as started:
        up = UpProcess(home / "stubborn")
        started.append(up)
        keeper = keeper_of(up)
        keeper.suspend()
        eventually(lambda: keeper.status() == psutil.STATUS_STOPPED, 10.0, "its standstill")
        up.signal(signal.SIGTERM)
        up.said("draining")
        first = CLOCK.monotonic()
        up.signal(signal.SIGTERM)  # `timeout` and `uv run` send one wish twice
        eventually(lambda: CLOCK.monotonic() > first + 1.5, 5.0, "another wish")
        assert up.process.poll() is None, up.output
        up.signal(signal.SIGTERM)
        assert up.ended(STOP_SECONDS) == 130


def test_a_broken_guard_would_be_seen(home: Path) -> None:
    """The broken twin of all checks that nothing is left: a process that stays."""
    left = []

    def leave_one() -> None:
        with nothing_left(home / "twin", 0.1):
            left.append(psutil.Popen(["/bin/sh", "-c", "sleep 60 && : $0", str(home / "twin")]))
            eventually(left[0].cmdline, 5.0, "its arguments")  # they are not there at once

    with pytest.raises(AssertionError, match="an end of"):
        leave_one()
    left[0].kill()
    left[0].wait()


def test_processes_of_another_up_are_not_found() -> None:
    assert started_by("no such up.") == []
