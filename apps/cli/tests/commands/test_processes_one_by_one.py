"""`tocsin migrate`, `api` and `engine` as processes, without Ray: they wait for the database, call, and stop."""

import json
import os
import queue
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tocsin.cli.postgres import EmbeddedPostgres, throwaway_settings

TOCSIN = Path(sys.executable).with_name("tocsin")
SECONDS = 30.0


class Process:
    """A `tocsin` command whose output is read by a thread."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [TOCSIN, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | environment,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.said: list[str] = []

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            for line in stdout:
                self._lines.put(line)

    def says(self, text: str) -> str:
        while True:
            line = self._lines.get(timeout=SECONDS)
            self.said.append(line)
            if text in line:
                return line

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return code


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[Process]:
    process = Process(*arguments, **environment)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.wait()


@pytest.fixture
def endpoint() -> Iterator[tuple[int, "queue.Queue[str]"]]:
    """A port, and the heads of the requests that came to it."""
    heads: queue.Queue[str] = queue.Queue()

    class Answer(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += self.rfile.readline()
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            heads.put(head.decode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], heads
        server.shutdown()


def ask(method: str, url: str, key: str, document: Any) -> Any:
    request = urllib.request.Request(
        url,
        method=method,
        data=json.dumps(document).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_task_is_called_without_ray(
    database_url: str, endpoint: tuple[int, "queue.Queue[str]"], number: signal.Signals
) -> None:
    port, heads = endpoint
    api_port = free_port()
    settings = {
        "TOCSIN_DATABASE_URL": database_url,
        "TOCSIN_API_PORT": str(api_port),
        "TOCSIN_EGRESS_ALLOW": f"127.0.0.1/32:{port}",
    }
    made = subprocess.run(
        [TOCSIN, "tenant", "create", "acme"], env=os.environ | settings, capture_output=True, text=True, check=True
    )
    key = made.stdout.partition("API key")[2].split()[0]
    with running("api", **settings) as api, running("engine", **settings) as engine:
        api.says(f"listening on 127.0.0.1:{api_port}")
        engine.says("took 64 shards")
        task = {
            "name": "tick",
            "schedule": {"every_seconds": 1},
            "request": {"url": f"http://127.0.0.1:{port}/hook"},
        }
        created = ask("POST", f"http://127.0.0.1:{api_port}/v1/tasks", key, task)
        head = heads.get(timeout=SECONDS)
        assert head.startswith("POST /hook HTTP/1.1\r\n")
        assert f"Tocsin-Task: {created['id']}" in head
        assert engine.end(number) == 0
        assert api.end(number) == 0
    assert "drained" in "".join(engine.said) or engine.says("drained")


def test_a_database_that_is_down_is_waited_for(open_tmp_path: Path) -> None:
    port = free_port()
    with EmbeddedPostgres(open_tmp_path / "late", port, settings=throwaway_settings()) as server:
        url = server.dsn
    with (
        running("migrate", TOCSIN_DATABASE_URL=url) as migrate,
        running("api", TOCSIN_DATABASE_URL=url, TOCSIN_API_PORT=str(free_port())) as api,
        running("engine", TOCSIN_DATABASE_URL=url) as engine,
    ):
        assert " WARNING tocsin.database: the database does not answer" in migrate.says("waiting for it")
        api.says("the database does not answer")
        engine.says("the database cannot be reached")
        with EmbeddedPostgres(open_tmp_path / "late", port, settings=throwaway_settings()):
            migrate.says("the database answers")
            migrate.says("applied 0001_init.sql")
            assert migrate.wait() == 0
            api.says("the database answers")
            engine.says("took 64 shards")
            assert engine.end() == 0
            assert api.end() == 0


def test_a_database_that_is_not_migrated_is_waited_for(empty_database_url: str) -> None:
    settings = {"TOCSIN_DATABASE_URL": empty_database_url, "TOCSIN_API_PORT": str(free_port())}
    with running("api", **settings) as api, running("engine", **settings) as engine:
        api.says("the database lacks 0001_init.sql: run `tocsin migrate`")
        engine.says("the database lacks 0001_init.sql: run `tocsin migrate`")
        with running("migrate", **settings) as migrate:
            assert migrate.wait() == 0
        api.says("the database answers")
        engine.says("took 64 shards")
        assert engine.end() == 0
        assert api.end() == 0


def test_a_taken_port_is_refused_in_one_sentence(database_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with running("api", TOCSIN_DATABASE_URL=database_url, TOCSIN_API_PORT=str(port)) as api:
            assert api.says(str(port)).startswith(f"tocsin: port {port} on 127.0.0.1 is taken")
            assert api.wait() == 1
