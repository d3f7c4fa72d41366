"""The embedded PostgreSQL's life, on real servers: as the account of the session, and as a plain one."""

import asyncio
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from launcher_place import AS_ROOT, CLOCK, PLAIN_UID, Place, ask, kill, refused
from tocsin.cli.postgres import (
    EmbeddedPostgres,
    PostgresError,
    earlier,
    processes,
    production_settings,
    programs,
    server,
    throwaway_settings,
)


def test_data_password_and_port_survive_a_restart(place: Place) -> None:
    with place.server() as first:
        dsn = first.dsn
        ask(dsn, "create table kept (n int)", "insert into kept values (7)")
    with place.server() as second:
        assert second.dsn == dsn
        assert ask(second.dsn, "select n from kept") == 7


def test_the_server_is_private(place: Place) -> None:
    with place.server() as running:
        assert ask(running.dsn, "select current_setting('listen_addresses')") == "127.0.0.1"
        assert ask(running.dsn, "select current_setting('server_encoding')") == "UTF8"
        assert ask(running.dsn, "select datcollate from pg_database where datname = 'tocsin'") == "C"
        with pytest.raises(asyncpg.InvalidPasswordError):
            ask(re.sub(r":[^:@]+@", ":wrong@", running.dsn), "select 1")
        rules = (place.cluster / "pg_hba.conf").read_text().splitlines()
        assert {rule.split()[-1] for rule in rules if rule and not rule.startswith("#")} == {"scram-sha-256"}
        for file in (place.home / "password", place.home / "server.log", place.home / "lock"):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        (sockets,) = place.sockets.iterdir()
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert (place.home / "password").read_text().strip() not in (place.home / "server.log").read_text()


def test_the_server_runs_apart(place: Place) -> None:
    with place.server() as running:
        postmaster = psutil.Process(running.pid)
        assert postmaster.uids().real != 0
        assert postmaster.uids().real == place.cluster.stat().st_uid
        assert postmaster.gids().real != 0
        # A Ctrl-C goes to the session of the terminal.
        assert os.getsid(postmaster.pid) == postmaster.pid


def test_an_unlike_environment_does_not_reach_the_server(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("TOCSIN_SECRET", "quiet")
    monkeypatch.setenv("LC_ALL", "xx_XX.nonsense")
    with place.server() as running:
        assert ask(running.dsn, "select 1") == 1
        assert "TOCSIN_SECRET" not in psutil.Process(running.pid).environ()


def test_production_settings_are_taken(place: Place) -> None:
    wanted = production_settings()
    buffers = wanted.pop("shared_buffers")
    with place.server(settings=production_settings()) as running:
        for name, value in wanted.items():
            assert ask(running.dsn, f"select current_setting('{name}')") == value, name
        same = f"select pg_size_bytes(current_setting('shared_buffers')) = pg_size_bytes('{buffers}')"
        assert ask(running.dsn, same)
    assert [production_settings()[name] for name in ("fsync", "full_page_writes", "synchronous_commit")] == ["on"] * 3
    assert throwaway_settings()["synchronous_commit"] == "on"


def test_start_and_stop_may_be_repeated(place: Place) -> None:
    running = place.server()
    with pytest.raises(PostgresError, match="not started"):
        _ = running.dsn
    running.stop()
    dsn, pid = running.start(), running.pid
    assert (running.start(), running.pid) == (dsn, pid)
    assert running.running
    running.stop()
    running.stop()
    assert (running.running, running.pid) == (False, None)


def test_a_killed_server_is_started_again_with_its_data(place: Place) -> None:
    running = place.server()
    ask(running.start(), "create table kept (n int)", "insert into kept values (7)")
    killed = psutil.Process(running.pid)
    kill(killed)
    assert not running.running
    assert ask(running.start(), "select n from kept") == 7
    assert running.pid != killed.pid
    running.stop()


def test_a_server_whose_pid_went_to_another_process_is_started_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.server():
        pass
    owner = place.cluster.stat()
    who: dict[str, Any] = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if AS_ROOT else {}
    with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE, **who) as other:
        stale = place.cluster / "postmaster.pid"

        def claim() -> None:
            stale.write_text(f"{other.pid}\n{place.cluster}\n1700000000\n1\n/nowhere\n127.0.0.1\n")
            os.chown(stale, owner.st_uid, owner.st_gid)
            stale.chmod(0o600)

        claim()
        with place.server() as running:
            assert ask(running.dsn, "select 1") == 1
        claim()
        monkeypatch.setattr(earlier, "end_earlier_server", lambda *_, **__: None)  # the broken twin
        refused(place.server().start, "refuses to start", "postmaster.pid", "already exists")
        other.communicate()


@pytest.mark.parametrize("uid", sorted({os.geteuid(), PLAIN_UID}))
def test_a_server_left_behind_by_a_killed_owner_is_replaced(place: Place, uid: int) -> None:
    home = place.folder / "own"
    home.mkdir(mode=0o700 if uid else 0o711)
    os.chown(home, uid, -1)
    with place.owner(uid, home) as owner:
        ask(owner.dsn, "create table kept (n int)", "insert into kept values (7)")
        left = owner.server
        owner.process.kill()
        owner.process.wait()
    assert not processes.ended(left, CLOCK, 0.0)
    with EmbeddedPostgres(home, bin_dir=place.bin_dir, settings=throwaway_settings()) as running:
        assert processes.ended(left, CLOCK, 0.0)
        assert running.pid != left.pid
        assert ask(running.dsn, "select n from kept") == 7
        assert len(list(place.sockets.iterdir())) == 1, "the socket folder of the old one is gone"


def test_a_plain_account_runs_its_own_server(place: Place) -> None:
    with place.owner(PLAIN_UID, place.folder / "plain") as owner:
        assert ask(owner.dsn, "select 1") == 1
        assert owner.server.uids().real == PLAIN_UID
        assert stat.S_IMODE((place.folder / "plain").stat().st_mode) == 0o700


def test_root_goes_on_with_the_data_of_a_plain_account(place: Place) -> None:
    home = place.folder / "plain"
    with place.owner(PLAIN_UID, home) as owner:
        ask(owner.dsn, "create table kept (n int)", "insert into kept values (7)")
    with EmbeddedPostgres(home, bin_dir=place.bin_dir, settings=throwaway_settings()) as running:
        assert psutil.Process(running.pid).uids().real == PLAIN_UID
        (home / "port").unlink()
    (home / "server.log").unlink()
    with EmbeddedPostgres(home, bin_dir=place.bin_dir, settings=throwaway_settings()) as running:
        assert ask(running.dsn, "select n from kept") == 7
    with place.owner(PLAIN_UID, home) as owner:
        assert ask(owner.dsn, "select n from kept") == 7


def test_a_port_that_is_asked_for_is_used(place: Place) -> None:
    port = server._free_port()
    with place.server(port) as running:
        assert f"@127.0.0.1:{port}/" in running.dsn


def test_no_mode_above_the_data_is_changed_whatever_the_umask(place: Place) -> None:
    above = {folder: folder.stat().st_mode for folder in place.folder.parents}
    before = os.umask(0o077)
    try:
        with place.server() as running:
            assert ask(running.dsn, "select 1") == 1
    finally:
        os.umask(before)
    assert {folder: folder.stat().st_mode for folder in above} == above


def test_programs_that_the_account_cannot_reach_are_copied_once(place: Place) -> None:
    root = programs._root_of(place.bin_dir)
    closed = place.folder / "closed"
    closed.mkdir(mode=0o700)
    for source in (root, programs._libraries(root)):
        if source.is_dir():
            shutil.copytree(source, closed / source.name, symlinks=True)
            for path in (closed / source.name).rglob("*"):
                path.chmod(0o700 if path.is_dir() or os.access(path, os.X_OK) else 0o600)
    installed = closed / root.name / place.bin_dir.relative_to(root)
    copied = place.home / "programs" / programs.version_of(installed) / root.name / place.bin_dir.relative_to(root)
    made = []
    for _ in range(2):
        with place.server(bin_dir=installed) as running:
            assert ask(running.dsn, "select 1") == 1
            program = Path(psutil.Process(running.pid).exe())
            assert program.parent == (copied if AS_ROOT else installed)
            made.append(program.stat().st_ino)
    assert made[0] == made[1]


def test_a_long_data_path_and_a_long_temporary_folder_are_no_hindrance(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = place.folder / ("long " * 30).strip()
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with EmbeddedPostgres(long / "data", bin_dir=place.bin_dir, settings=throwaway_settings()) as running:
        assert ask(running.dsn, "select current_setting('unix_socket_directories')").startswith("/tmp/")
    assert [path.name for path in long.iterdir()] == ["data"]


def test_a_server_that_does_not_stop_is_killed(place: Place) -> None:
    running = place.server(stop_grace=0.1)
    running.start()
    psutil.Process(running.pid).suspend()
    running.stop()
    assert processes.of_cluster(place.cluster) == []


def test_a_stop_ends_busy_sessions(place: Place) -> None:
    running = place.server()
    dsn = running.start()

    async def hold_while_stopping() -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute("begin; create table held (n int)")
        await asyncio.to_thread(running.stop)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await connection.execute("commit")
        connection.terminate()

    asyncio.run(hold_while_stopping())


def test_a_grown_log_is_set_aside(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LOG_LIMIT", 10)
    for _ in range(2):
        with place.server():
            pass
    for log in (place.home / "server.log", place.home / "server.log.1"):
        assert log.read_text().count("ready to accept connections") == 1
