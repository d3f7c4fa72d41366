"""`tocsin up --demo`, whole: what it starts, that its tasks are called on time, and that it stops."""

import contextlib
import json
import signal
import stat
import urllib.error
import urllib.request
from typing import Any

import psutil
import pytest

from up_process import CLOCK, KEEPER, STOP_SECONDS, UpProcess, eventually, is_called, lives, nothing_left

OUTCOMES = """
select count(*) from history h join tasks t on t.id = h.task_id
 where t.name = $1 and h.state is not distinct from $2 and h.outcome = $3
"""
LATEST = """
select extract(epoch from max(ended_at))::float8 from history h join tasks t on t.id = h.task_id
 where t.name = 'every 2 s' and h.state = 'succeeded'
"""
SECONDS = 60.0

pytestmark = pytest.mark.timeout(240)


def asked(url: str, token: str = "", method: str = "GET") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None


def runs_go_on(up: UpProcess, what: str) -> None:
    """Waits for a success of a call that was made from now on."""
    now = CLOCK.now().timestamp()
    eventually(lambda: (up.ask(LATEST) or 0) > now, SECONDS, f"a run after {what}")


def test_one_screen_says_what_runs_where(demo: UpProcess) -> None:
    assert demo.said(r"API +http://127\.0\.0\.1:(\d+) +pid \d+")[1] == str(demo.port)
    assert demo.said(r"Ray +http://127\.0\.0\.1:(\d+) +pid \d+")[1] == str(demo.dashboard_port)
    demo.said(rf"PostgreSQL .* pid \d+ +data: {demo.data_dir}")
    demo.said(r"Endpoint +http://127\.0\.0\.1:\d+ +pid \d+")
    demo.said(rf"^  KEY=\$\(cat '{demo.data_dir}/demo-key'\)$")
    demo.said(r'^  curl -s -H "Authorization: Bearer \$KEY" http://127\.0\.0\.1:\d+/v1/tasks$')
    demo.said(r"every 2 s: due .*, started .*, delay \d+\.\d ms, attempt 1, succeeded 200", SECONDS)


def test_the_key_in_the_file_opens_the_api(demo: UpProcess) -> None:
    key = (demo.data_dir / "demo-key").read_text().strip()
    base = f"http://127.0.0.1:{demo.port}"
    status, tasks = asked(f"{base}/v1/tasks", key)
    assert (status, len(tasks["tasks"])) == (200, 22)
    assert asked(f"{base}/v1/tasks", key[:-1] + "?")[0] == 401
    task = next(task["id"] for task in tasks["tasks"] if task["name"] == "every minute")
    status, run = asked(f"{base}/v1/tasks/{task}/run-now", key, "POST")
    assert status == 202
    found = "select state from history where run_id = $1::uuid and state is not null"
    assert eventually(lambda: demo.ask(found, run["run_id"]), SECONDS, "the run") == "succeeded"


def test_the_dashboard_asks_for_the_token(demo: UpProcess) -> None:
    url = f"http://127.0.0.1:{demo.dashboard_port}/api/cluster_status"
    assert asked(url)[0] == 401
    assert asked(url, (demo.data_dir / "ray-token").read_text().strip())[0] == 200


def test_secrets_are_in_private_files_only(demo: UpProcess) -> None:
    secrets = {}
    for name in ("demo-key", "ray-token", "password"):
        file = demo.data_dir / name
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        secrets[name] = file.read_text().strip()
    arguments = " ".join(word for process in demo.descendants() for word in process.cmdline())
    assert "raylet" in arguments
    assert [name for name, secret in secrets.items() if secret in arguments] == []


def test_the_endpoint_is_allowed_beside_what_the_operator_allows(demo: UpProcess) -> None:
    port = demo.said(r"Endpoint +http://127\.0\.0\.1:(\d+)")[1]
    environment = demo.child(KEEPER).environ()
    assert environment["TOCSIN_EGRESS_ALLOW"] == f"10.1.2.3/32:80,127.0.0.1/32:{port}"


def test_only_loopback_is_listened_on(demo: UpProcess) -> None:
    addresses = set()
    for process in demo.descendants():
        with contextlib.suppress(psutil.NoSuchProcess):  # Ray's helpers come and go
            found = process.net_connections(kind="inet")
            addresses |= {connection.laddr.ip for connection in found if connection.status == psutil.CONN_LISTEN}
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert addresses


@pytest.mark.parametrize("name", ["tocsin.cli.up.api_process", "tocsin.cli.demo.endpoint", "postgres"])
def test_what_dies_comes_back(demo: UpProcess, name: str) -> None:
    if name == "postgres":
        victim = psutil.Process(int((demo.data_dir / "cluster" / "postmaster.pid").read_text().split()[0]))
    else:
        victim = demo.child(name)
    victim.kill()
    spoken = {"postgres": "PostgreSQL"}.get(name, name.rpartition(".")[2].partition("_")[0])
    demo.said(f"{spoken} is back", SECONDS)
    runs_go_on(demo, f"the end of {spoken}")


@pytest.mark.parametrize(
    ("task", "state", "outcome"),
    [
        ("every 2 s", "succeeded", "success"),
        ("once, in 10 s", "succeeded", "success"),
        ("spread over 8 s", "succeeded", "success"),
        ("flaky: 503, then 200", None, "http_error"),
        ("flaky: 503, then 200", "succeeded", "success"),
        ("overlap: skip", "skipped", "skipped"),
        ("overlap: cancel previous", "cancelled", "cancelled"),
    ],
)
def test_tasks_end_as_they_should(demo: UpProcess, task: str, state: str | None, outcome: str) -> None:
    eventually(lambda: demo.ask(OUTCOMES, task, state, outcome), SECONDS, f"{task}: {outcome}")


def test_calls_start_on_time(demo: UpProcess) -> None:
    demo.said("start delay at the endpoint", SECONDS)
    late = """
    select percentile_cont(0.5) within group (order by extract(epoch from started_at - due_at))::float8
      from history h join tasks t on t.id = h.task_id
     where t.name in ('every 2 s', 'once, in 10 s', 'spread over 8 s') and h.fence = 1 and h.sent
    """
    assert 0 <= demo.ask(late) < 0.5


def test_ray_comes_back_without_its_gcs(demo: UpProcess) -> None:
    """And though the raylet of its next start dies before that is ready."""
    old = [process for process in demo.descendants() if "ray::" in " ".join(process.cmdline())]
    assert len(old) > 1
    seen = set(demo.descendants())
    demo.child("gcs_server").kill()
    demo.said(r"ray has ended \(exit code 1\)", SECONDS)

    def early() -> list[psutil.Process]:
        return [process for process in set(demo.descendants()) - seen if is_called(process, "raylet")]

    [raylet] = eventually(early, SECONDS, "another raylet")
    keeper = demo.child(KEEPER)
    broken_off = [keeper, *keeper.children(recursive=True)]
    raylet.kill()
    demo.said("its raylet ended before it was ready", 5.0)  # Ray itself would wait for half a minute
    demo.said("ray is back", SECONDS)
    assert [process for process in old if lives(process)] == [], "actors of the Ray before live on"
    assert [process for process in broken_off if lives(process)] == [], "something of the start that failed lives on"
    runs_go_on(demo, "the end of the GCS")


def test_the_data_directory_serves_one(demo: UpProcess) -> None:
    second = UpProcess(demo.data_dir)
    assert second.ended(SECONDS) == 1
    assert f"in use by another tocsin (pid {demo.process.pid})" in second.output
    assert len(second.lines) == 1
    runs_go_on(demo, "a second up")


def test_a_taken_port_is_refused(demo: UpProcess) -> None:
    other = demo.data_dir.parent / "other"
    with nothing_left(other) as started:
        refused = UpProcess(other, port=demo.port)
        assert refused.ended(SECONDS) == 1
        assert refused.lines == [
            f"tocsin: port {demo.port} on 127.0.0.1, meant for the API, is taken by another program: "
            "choose another with --port"
        ]
        started.append(refused)
        refused = UpProcess(other, dashboard_port=demo.port)
        assert refused.ended(SECONDS) == 1
        assert "choose another with --dashboard-port" in refused.output


def test_sigterm_drains_and_ends_with_0(demo: UpProcess) -> None:
    demo.signal(signal.SIGTERM)
    assert demo.ended(STOP_SECONDS) == 0
    assert demo.lines[-1] == "Tocsin has stopped"
    assert demo.lines.index("Tocsin is draining; a second Ctrl-C kills it") > 0


def test_the_data_survive_a_restart_from_a_script(demo: UpProcess) -> None:
    """Started with `&`, so with SIGINT ignored; SIGINT ends it all the same, also while Ray is being started again."""
    assert demo.process.poll() is not None
    key = (demo.data_dir / "demo-key").read_text()
    script = ("/bin/sh", "-c", '"$@" & echo "pid $!"; wait $!', "sh")
    with nothing_left(demo.data_dir) as started:
        again = UpProcess(demo.data_dir, "--demo", "--executors", "2", command=script, port=demo.port)
        started.append(again)
        pid = int(again.said(r"^pid (\d+)")[1])
        again.serving()
        runs_go_on(again, "the restart")
        assert (demo.data_dir / "demo-key").read_text() == key
        assert again.ask("select count(*) from tenants") == 1
        assert again.ask("select count(*) from tasks where state <> 'deleted'") == 22
        owners = "select count(distinct owner) from shards where owner is not null"
        eventually(lambda: again.ask(owners) == 2, SECONDS, "two executors that share the shards")
        again.child("raylet").kill()
        again.said(r"ray has ended \(exit code 1\)", SECONDS)
        psutil.Process(pid).send_signal(signal.SIGINT)
        assert again.ended(STOP_SECONDS) == 0
