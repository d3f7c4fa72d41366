"""What the embedded PostgreSQL refuses, each in one sentence; without the guard, the check fails."""

import os
import shutil
import socket
import stat
from functools import partial
from pathlib import Path

import pytest

from launcher_place import AS_ROOT, CLOCK, Place, ask, refused
from tocsin.cli.postgres import (
    EmbeddedPostgres,
    PostgresError,
    account,
    binaries,
    cluster,
    earlier,
    programs,
    server,
)
from tocsin.common.clock import SystemClock


def test_a_second_owner_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.server() as first:
        refuse = partial(refused, place.server().start, "in use by another tocsin", str(os.getpid()), str(place.home))
        refuse()
        assert ask(first.dsn, "select 1") == 1
        with monkeypatch.context() as twin:
            twin.setattr(cluster, "take_lock", lambda *_: None)
            usurper = place.server()
            with pytest.raises(pytest.fail.Exception):
                refused(usurper.start, "in use by another tocsin")
            assert not first.running, "without the lock, the first server is taken for one left behind"
            usurper.stop()


class LetsGo(SystemClock):
    """Whoever holds this lock lets it go when another has begun to wait for it."""

    def __init__(self, held: int) -> None:
        self._held = [held]
        self.let_go = False

    def monotonic(self) -> float:
        if self.let_go and self._held:
            os.close(self._held.pop())
        self.let_go = True
        return super().monotonic()


def taken_over(home: Path, wait: float) -> str:
    """What the lock says of its holder once that has changed hands."""
    layout = cluster.Layout(home)
    held = cluster.take_lock(layout, CLOCK)
    layout.lock.write_text("77")
    os.close(cluster.take_lock(layout, LetsGo(held), wait))
    return layout.lock.read_text()


def test_a_lock_that_is_held_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    """As by the guardian of an `up` that was killed."""
    assert taken_over(tmp_path, cluster.LOCK_SECONDS) == f"{os.getpid()}\n"
    with pytest.raises(PostgresError, match=r"in use by another tocsin \(pid 77\)"):  # the broken twin
        taken_over(tmp_path, 0.0)


def test_a_foreign_server_is_left_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.server():
        pass
    foreign = place.server()
    with monkeypatch.context() as patch:
        patch.setattr(earlier, "SOCKET_FOLDER_PREFIX", "other-")
        foreign.start()
    shutil.copy(place.home / "lock", place.home / "lock.copy")
    os.replace(place.home / "lock.copy", place.home / "lock")  # a lock that nobody holds
    refuse = partial(
        refused, place.server().start, "in use by a PostgreSQL that tocsin did not start", str(foreign.pid)
    )
    refuse()
    assert ask(foreign.dsn, "select 1") == 1
    monkeypatch.setattr(earlier, "SOCKET_FOLDER_PREFIX", "")  # the broken twin takes every server for its own
    usurper = place.server()
    with pytest.raises(pytest.fail.Exception):
        refused(usurper.start, "in use by a PostgreSQL")
    assert not foreign.running
    usurper.stop()
    foreign.stop()


def test_a_taken_port_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused(place.server(port).start, f"port {port}", "taken by another program")
        # Taken between our look and the server's: its own words are understood.
        monkeypatch.setattr(server, "_is_free", lambda _: True)
        refused(place.server(port).start, f"port {port}", "taken by another program")
        # A port that we chose gives way.
        (place.home / "port").write_text(f"{port}\n")
        with place.server() as running:
            assert f":{port}/" not in running.dsn
            assert (place.home / "port").read_text().strip() in running.dsn


def test_a_port_that_the_account_may_not_use_is_refused(place: Place) -> None:
    limit = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if limit.exists() and int(limit.read_text()) > 1:
        refused(place.server(1).start, "refuses to start", "could not bind", "ermission denied")


def test_data_of_another_major_version_are_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.server():
        pass
    (place.cluster / "PG_VERSION").write_text("1\n")
    refuse = partial(refused, place.server().start, "are of PostgreSQL 1,", "dump them")
    refuse()
    monkeypatch.setattr(cluster, "require_major", lambda *_: None)
    with pytest.raises(AssertionError):
        refuse()


def test_what_the_server_says_last_is_quoted(place: Place) -> None:
    with place.server():
        pass
    with (place.cluster / "postgresql.conf").open("a") as file:
        file.write("no_such_setting = 1\n")
    refused(place.server().start, "refuses to start", "postgresql.conf", "contains errors", "server.log")


def test_a_server_that_takes_too_long_is_stopped(place: Place) -> None:
    refused(place.server(start_limit=0.0).start, "took no connections within 0 s")


def test_a_lost_password_is_told(place: Place) -> None:
    with place.server():
        pass
    (place.home / "password").unlink()
    refused(place.server().start, "password", "missing")


def test_a_making_that_failed_leaves_no_half_made_data(place: Place) -> None:
    fake = place.folder / "fake"
    fake.mkdir()
    version = programs.version_of(place.bin_dir)
    (fake / "postgres").write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
    (fake / "initdb").write_text(
        '#!/bin/sh\ntest "$1" = --version && exit\ntouch "$2/PG_VERSION"\necho "initdb: error: no space" >&2\nexit 1\n'
    )
    for program in fake.iterdir():
        program.chmod(0o755)
    refused(place.server(bin_dir=fake).start, "could not be made", "initdb: error: no space")
    assert sorted(path.name for path in place.home.iterdir()) == ["cluster.new", "lock", "password"]
    with place.server() as running:
        assert ask(running.dsn, "select 1") == 1
    assert not (place.home / "cluster.new").exists()


def test_a_closed_parent_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = place.folder / "closed"
    closed.mkdir(mode=0o700)
    refuse = partial(
        refused,
        lambda: EmbeddedPostgres(closed / "more" / "data", bin_dir=place.bin_dir).start(),
        f"cannot enter {closed} on the way",
        f"chmod o+x '{closed}'",
    )
    if not AS_ROOT:
        closed.chmod(0o000)
    refuse()
    assert stat.S_IMODE(closed.stat().st_mode) == (0o700 if AS_ROOT else 0)
    with monkeypatch.context() as twin:
        twin.setattr(account.Account, "require_way_to", lambda *_: None)
        with pytest.raises(AssertionError):
            refuse()
    closed.chmod(0o700)


def test_a_folder_that_cannot_be_made_is_told(place: Place) -> None:
    (place.folder / "file").touch()
    refused(EmbeddedPostgres(place.folder / "file" / "data").start, "file on the way", "is not a folder")
    refused(EmbeddedPostgres(place.folder / "file").start, "file on the way", "is not a folder")


def test_a_version_that_is_not_installed_is_told() -> None:
    refused(lambda: binaries(3), "no PostgreSQL 3", "TOCSIN_DATABASE_URL")


def test_programs_that_do_not_run_are_told(place: Place) -> None:
    refused(place.server(bin_dir=place.folder).start, "does not run on this machine", str(place.folder))


def test_links_in_the_data_directory_are_not_followed(place: Place) -> None:
    with place.server() as running:
        port = (place.home / "port").read_text()
        assert f":{port.strip()}/" in running.dsn
    victim = place.folder / "victim"
    victim.write_text("precious")
    (place.home / "port").unlink()
    (place.home / "port").symlink_to(victim)
    with place.server():
        assert not (place.home / "port").is_symlink()
    for name in ("lock", "server.log"):
        (place.home / name).unlink()
        (place.home / name).symlink_to(victim)
        refused(place.server().start, "cannot be started", name)
        (place.home / name).unlink()
    assert victim.read_text() == "precious"
