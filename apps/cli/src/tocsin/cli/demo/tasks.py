"""The demo's tasks: each shows one thing that a scheduler has to get right."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tocsin.api.timestamps import format_timestamp

ONCE = "once, in 10 s"
"""The one task whose slot lies at the start of `up`: made anew at each start."""


@dataclass(frozen=True, slots=True)
class DemoTask:
    """`path` is the endpoint's. `prompt`: nothing but Tocsin itself can delay it, so its delay is counted."""

    name: str
    schedule: Mapping[str, Any]
    path: str = "/ok"
    fields: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    prompt: bool = True

    def document(self, endpoint: str) -> dict[str, Any]:
        """The body of `POST /v1/tasks`; `endpoint` is like `http://127.0.0.1:9000`."""
        request = {"url": endpoint + self.path, "json": {"task": self.name}, **self.request}
        return {"name": self.name, "schedule": dict(self.schedule), "request": request, **self.fields}


def demo_tasks(now: datetime) -> list[DemoTask]:
    """All of them; `now` decides when the single one is due."""
    once = format_timestamp((now + timedelta(seconds=10)).replace(microsecond=0))
    quick_retry = {"max_attempts": 3, "base_seconds": 1.0}
    every_15 = {"cron": "*/15 * * * * *"}
    return [
        DemoTask("every 2 s", {"every_seconds": 2}),
        DemoTask("every minute", {"cron": "* * * * *"}),
        DemoTask("every 10 s by cron", {"cron": "*/10 * * * * *"}),
        DemoTask(ONCE, {"at": once}),
        DemoTask("09:00 in New York on weekdays", {"cron": "0 9 * * MON-FRI", "zone": "America/New_York"}),
        DemoTask("every half minute in Kathmandu", {"cron": "*/30 * * * * *", "zone": "Asia/Kathmandu"}),
        DemoTask("flaky: 503, then 200", {"every_seconds": 7}, "/flaky", {"retry": quick_retry}),
        DemoTask("busy: 429, Retry-After 2", {"every_seconds": 13}, "/busy", {"retry": quick_retry}),
        DemoTask(
            "broken: dead after 2 attempts",
            {"every_seconds": 20},
            "/broken",
            {"retry": {"max_attempts": 2, "base_seconds": 1.0}},
        ),
        DemoTask("gone: 410 ends it at once", {"every_seconds": 30}, "/gone"),
        DemoTask("hangs up", {"every_seconds": 40}, "/hangup", {"retry": {"max_attempts": 1}}),
        DemoTask("slow: 2 s", {"every_seconds": 5}, "/slow?seconds=2"),
        DemoTask(
            "too slow: times out after 1 s",
            {"every_seconds": 25},
            "/slow?seconds=3",
            {"timeout_seconds": 1.0, "retry": {"max_attempts": 1}},
        ),
        DemoTask("overlap: skip", {"every_seconds": 2}, "/slow?seconds=3", {"overlap": "skip"}, prompt=False),
        DemoTask(
            "overlap: buffer one", {"every_seconds": 2}, "/slow?seconds=3", {"overlap": "buffer_one"}, prompt=False
        ),
        DemoTask(
            "overlap: cancel previous",
            {"every_seconds": 4},
            "/slow?seconds=5",
            {"overlap": "cancel_previous"},
            prompt=False,
        ),
        DemoTask("critical, every 15 s", every_15, fields={"priority": "critical"}),
        DemoTask("low, every 15 s", every_15, fields={"priority": "low"}),
        DemoTask("spread over 8 s", {"cron": "*/10 * * * * *"}, fields={"spread_seconds": 8}),
        DemoTask("misfire: skip", {"every_seconds": 10}, fields={"misfire": "skip"}),
        DemoTask(
            "misfire: fire all, 5 at most",
            {"every_seconds": 10},
            fields={"misfire": "fire_all", "max_catchup": 5},
            prompt=False,
        ),
        DemoTask(
            "refused: the cloud's metadata",
            {"every_seconds": 30},
            fields={"retry": {"max_attempts": 1}},
            request={"url": "http://169.254.169.254/latest/meta-data/"},
        ),
    ]
