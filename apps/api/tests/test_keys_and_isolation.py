"""Who may see what."""

import random
import re
from uuid import UUID, uuid4

import pytest

from api_client import Client, Connection
from tocsin.api.auth import KEPT_SECONDS, MAX_KEPT, Keys
from tocsin.common.clock import ManualClock, SystemClock
from tocsin.common.keys import hash_key, new_key


class Finder:
    """Counts the looks, as the database would answer them."""

    def __init__(self) -> None:
        self.tenants: dict[bytes, UUID] = {}
        self.looks = 0

    async def find_key(self, key_hash: bytes) -> tuple[UUID, UUID] | None:
        self.looks += 1
        tenant_id = self.tenants.get(key_hash)
        return None if tenant_id is None else (uuid4(), tenant_id)

    def add(self, text: str) -> UUID:
        return self.tenants.setdefault(hash_key(text), uuid4())


def test_a_new_key() -> None:
    text, key_hash = new_key(random.Random(1).randbytes)
    assert re.fullmatch("tocsin_[0-9a-f]{64}", text)
    assert key_hash == hash_key(text)
    assert len(key_hash) == 32
    assert new_key()[0] != new_key()[0]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now())


async def test_a_found_key_is_kept_for_seconds_only(clock: ManualClock) -> None:
    finder = Finder()
    keys = Keys(finder, clock)
    tenant_id = finder.add("a")
    assert [await keys.tenant_of("a") for _ in range(3)] == [tenant_id] * 3
    assert finder.looks == 1
    finder.tenants.clear()  # revoked
    clock.advance(KEPT_SECONDS - 0.001)
    assert await keys.tenant_of("a") == tenant_id
    clock.advance(0.001)
    assert await keys.tenant_of("a") is None


async def test_unknown_keys_are_not_kept_and_cost_one_look_each(clock: ManualClock) -> None:
    finder = Finder()
    keys = Keys(finder, clock)
    assert await keys.tenant_of("a") is None
    tenant_id = finder.add("a")
    assert await keys.tenant_of("a") == tenant_id  # a new key works at once
    assert finder.looks == 2


async def test_the_number_of_kept_keys_is_bounded(clock: ManualClock) -> None:
    finder = Finder()
    keys = Keys(finder, clock)
    for number in range(MAX_KEPT + 10):
        finder.add(str(number))
        await keys.tenant_of(str(number))
    looks = finder.looks
    await keys.tenant_of(str(MAX_KEPT + 9))
    assert finder.looks == looks
    await keys.tenant_of("0")
    assert finder.looks == looks + 1
    assert len(keys._kept) == MAX_KEPT


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        "Bearer tocsin_" + "0" * 64,
        "Bearer " + "x" * 4_000,
        "Bearer \u00fc",
        "Bearer %s x",
        "%s",
    ],
)
async def test_without_a_valid_key_nothing_is_answered(client: Client, authorization: str | None) -> None:
    client_headers = {} if authorization is None else {"Authorization": authorization.replace("%s", client.key)}
    for path in ("/v1/tasks", "/v1/nothing", f"/v1/runs/{uuid4()}"):
        url = f"http://127.0.0.1:{client.port}{path}"
        async with client.session.get(url, headers=client_headers) as answer:
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert answer.content_type == "application/problem+json"


async def test_probes_ask_for_no_key(client: Client) -> None:
    client.key = "nobody's"
    for path in ("/healthz", "/readyz", "/v1/version"):
        assert (await client.call("GET", path)).status == 200
    version = (await client.call("GET", "/v1/version")).document
    assert re.fullmatch(r"20\d\d[a-z]", version["zone_data"])


async def test_the_scheme_is_read_in_any_case(client: Client) -> None:
    answer = await client.call("GET", "/v1/tasks", headers={"Authorization": f"bearer {client.key}"})
    assert answer.status == 200


async def test_only_the_hash_of_a_key_is_stored(client: Client, sql: Connection) -> None:
    (row,) = await sql.fetch("select * from api_keys")
    assert row["hash"] == hash_key(client.key)
    assert client.key not in str(dict(row))


async def test_another_tenants_tasks_and_runs_are_not_there(client: Client, other: Client, sql: Connection) -> None:
    task_id = await client.made()
    run_id = (await client.call("POST", f"/v1/tasks/{task_id}/run-now")).document["run_id"]
    state = "select t, p from tasks t join pending p on p.task_id = t.id order by p.run_id"
    before = await sql.fetch(state)
    for method, path in (
        ("GET", f"/v1/tasks/{task_id}"),
        ("PATCH", f"/v1/tasks/{task_id}"),
        ("DELETE", f"/v1/tasks/{task_id}"),
        ("POST", f"/v1/tasks/{task_id}/pause"),
        ("POST", f"/v1/tasks/{task_id}/resume"),
        ("POST", f"/v1/tasks/{task_id}/run-now"),
        ("POST", f"/v1/tasks/{task_id}/skip-next"),
        ("GET", f"/v1/tasks/{task_id}/preview"),
        ("GET", f"/v1/tasks/{task_id}/runs"),
        ("GET", f"/v1/runs/{run_id}"),
        ("POST", f"/v1/runs/{run_id}/cancel"),
    ):
        theirs = await other.call(method, path, {"name": "stolen"} if method == "PATCH" else None)
        nobodys = await other.call(
            method, path.replace(task_id, str(uuid4())).replace(run_id, str(uuid4())), {} if method == "PATCH" else None
        )
        assert theirs.status == nobodys.status == 404
        hidden = {"request_id": None}
        assert theirs.document | hidden == nobodys.document | hidden
    assert (await other.call("GET", "/v1/tasks")).document["tasks"] == []
    assert await sql.fetch(state) == before
