"""The request that a run becomes."""

import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from tocsin.common.models import AtSchedule, CallSpec, Kind, Method, PlanSpec, Priority, TaskState
from tocsin.common.store.rows import Begun, Task
from tocsin.executor.request import USER_AGENT, Template, Templates, rfc3339
from tocsin.executor.signature import Signer
from tocsin.executor.transport.port import OutgoingRequest
from tocsin.executor.transport.wire import serialize

RUN, TASK, TENANT = (UUID(int=number) for number in (1, 2, 3))
SLOT = datetime(2026, 3, 1, 9, tzinfo=UTC)
NOW = SLOT + timedelta(milliseconds=3)


def begun(slot: datetime | None = SLOT, fence: int = 3, losses: int = 1) -> Begun:
    return Begun(
        run_id=RUN,
        fence=fence,
        tenant_id=TENANT,
        task_id=TASK,
        priority=Priority.NORMAL,
        due_at=SLOT + timedelta(seconds=7, microseconds=250),
        slot=slot,
        last_slot=None,
        lane=0,
        kind=Kind.SLOT if slot else Kind.NOW,
        plan_version=1,
        losses=losses,
        version=1,
    )


def built(
    call: CallSpec | None = None, body: bytes | None = b"{}", run: Begun | None = None, seed: int = 1
) -> OutgoingRequest:
    template = Template(TASK, call or CallSpec(url="https://api.example/hook?x=1"), body)
    return template.build(run or begun(), Signer(["whsec_AAAA"]), now=NOW, rng=random.Random(seed))


def test_a_run_is_named_in_its_headers() -> None:
    headers = dict(built().headers)
    assert headers["Idempotency-Key"] == str(RUN)
    assert headers["Tocsin-Attempt"] == "2"
    assert headers["Tocsin-Fence"] == "3"
    assert headers["Tocsin-Task"] == str(TASK)
    assert headers["Tocsin-Scheduled-For"] == "2026-03-01T09:00:00Z"
    assert headers["webhook-id"] == str(RUN)
    assert headers["webhook-timestamp"] == str(int(SLOT.timestamp()))
    assert headers["webhook-signature"].startswith("v1,")
    assert headers["User-Agent"] == USER_AGENT
    assert headers["Content-Type"] == "application/json"


def test_the_key_stays_while_attempt_trace_and_fence_change() -> None:
    first, second = dict(built().headers), dict(built(run=begun(fence=4), seed=2).headers)
    assert first["Idempotency-Key"] == second["Idempotency-Key"]
    for name in ("Tocsin-Attempt", "Tocsin-Fence", "traceparent"):
        assert first[name] != second[name]


def test_a_run_now_is_scheduled_for_the_instant_it_was_asked_for_on_every_attempt() -> None:
    asked = datetime(2026, 3, 1, 9, 0, 6, 250_000, tzinfo=UTC)
    run = replace(begun(slot=None), run_id=UUID(int=int(asked.timestamp() * 1000) << 80 | 7 << 76))
    for attempt in (run, replace(run, fence=run.fence + 1, due_at=run.due_at + timedelta(minutes=5))):
        assert dict(built(run=attempt).headers)["Tocsin-Scheduled-For"] == "2026-03-01T09:00:06.250000Z"


def test_instants_are_written_in_utc() -> None:
    zone = timezone(timedelta(hours=2))
    assert rfc3339(datetime(2026, 3, 1, 11, tzinfo=zone)) == "2026-03-01T09:00:00Z"


def test_traceparent_is_w3c_and_never_all_zeros() -> None:
    class Zeros(random.Random):
        def getrandbits(self, k: int) -> int:
            return 0

    form = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-01")
    assert form.fullmatch(dict(built().headers)["traceparent"])
    template = Template(TASK, CallSpec(url="http://a.example"), None)
    request = template.build(begun(), Signer([]), now=NOW, rng=Zeros())
    assert form.fullmatch(dict(request.headers)["traceparent"])


def test_a_tasks_own_headers_win_over_defaults() -> None:
    call = CallSpec(url="http://a.example", headers={"user-agent": "mine", "content-type": "text/plain", "X-A": "b"})
    headers = [(name.lower(), value) for name, value in built(call).headers]
    assert [value for name, value in headers if name == "user-agent"] == ["mine"]
    assert [value for name, value in headers if name == "content-type"] == ["text/plain"]
    assert ("x-a", "b") in headers


def test_method_target_body_and_deadline_are_the_calls() -> None:
    call = CallSpec(url="http://A.example:8080/p", method=Method.PUT, timeout_seconds=2.5)
    request = built(call, body=b"data")
    assert (request.method, request.body, request.deadline) == ("PUT", b"data", 2.5)
    assert request.target.authority == "a.example:8080"
    assert "Content-Type" not in dict(built(call, body=None).headers)


def a_task(number: int = 1, **call: object) -> Task:
    spec = CallSpec.model_validate({"url": "https://api.example/hook", **call})
    plan = PlanSpec(schedule=AtSchedule(at=SLOT))
    return Task(UUID(int=number), TENANT, "task", TaskState.ACTIVE, 1, 1, plan, spec, b"{}", SLOT, SLOT)


def follows_an_edit(templates: Templates) -> None:
    """Definitions are values: another one is another object, whatever its version says."""
    first, second = a_task(), a_task(timeout_seconds=2.5)
    for task, deadline in ((first, 30.0), (second, 2.5), (first, 30.0)):
        request = templates.of(task).build(begun(), Signer([]), now=NOW, rng=random.Random(1))
        assert request.deadline == deadline


def test_a_template_is_made_once_for_a_definition_and_anew_for_another() -> None:
    templates, task = Templates(), a_task()
    assert templates.of(task) is templates.of(task)
    follows_an_edit(templates)


def test_the_check_catches_templates_that_go_by_the_task_alone() -> None:
    class ByTask(Templates):
        def of(self, task: Task) -> Template:
            made = self._made.get(task.id)
            return super().of(task) if made is None else made[1]

    with pytest.raises(AssertionError):
        follows_an_edit(ByTask())


def test_templates_are_bounded() -> None:
    templates = Templates(size=2)
    tasks = [a_task(number) for number in range(3)]
    first = templates.of(tasks[0])
    for task in tasks[1:]:
        templates.of(task)
    assert len(templates._made) == 2
    assert templates.of(tasks[0]) is not first


def test_the_wire_form_is_one_message() -> None:
    request = OutgoingRequest(
        built(CallSpec(url="http://[::1]:81/p?q")).target, "POST", (("X-A", "caf\xe9"),), b"body", 1.0
    )
    assert serialize(request) == (
        b"POST /p?q HTTP/1.1\r\nHost: [::1]:81\r\nX-A: caf\xe9\r\nContent-Length: 4\r\n\r\nbody"
    )
