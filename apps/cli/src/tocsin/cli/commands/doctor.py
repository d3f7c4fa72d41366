"""`tocsin doctor`: every setting with its source, and a check of every part."""

import resource
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import typer
from pydantic import SecretStr

from tocsin.cli.commands.run import run, settings, table
from tocsin.cli.database import NEWEST_MAJOR, OLDEST_MAJOR, major_of, open_store
from tocsin.cli.egress import read_egress
from tocsin.cli.limits import in_flight_limit
from tocsin.cli.tenants import MAX_IN_FLIGHT
from tocsin.common.clock import SystemClock
from tocsin.common.errors import TocsinError
from tocsin.common.settings import Settings
from tocsin.common.store.postgres.migrate import schema_state
from tocsin.common.time.zones import zone_data_version

_PREFIX = "TOCSIN_"
_REDIS_SECONDS = 5.0


class Broken(TocsinError):  # noqa: N818 - a finding, not a failure of this program
    """A part does not work; the text says why and what to do."""


def doctor() -> None:
    """Print all settings with their source and check each part; exit code 1 if one is broken."""
    chosen = settings()
    table([["setting", "value", "source"], *setting_rows(chosen)])
    typer.echo()
    findings = run(examine(chosen))
    for finding in findings:
        typer.echo(f"{'ok    ' if finding.sound else 'BROKEN'}  {finding.part}: {finding.text}")
    if not all(finding.sound for finding in findings):
        raise typer.Exit(1)


def setting_rows(chosen: Settings) -> list[list[str]]:
    """Name, value and source of every setting; secrets masked."""
    rows = []
    for field in type(chosen).model_fields:
        name = _PREFIX + field.upper()
        source = f"environment {name}" if field in chosen.model_fields_set else "default"
        rows.append([name, _shown(getattr(chosen, field)), source])
    return rows


def _shown(value: object) -> str:
    if not isinstance(value, SecretStr):
        return "-" if value in (None, "") else str(value)
    parts = urlsplit(value.get_secret_value())
    if parts.password is None or not parts.hostname:
        return parts._replace(query="").geturl() if parts.hostname else "***"
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username}:***@{place}", query="").geturl()


@dataclass(frozen=True, slots=True)
class Finding:
    part: str
    sound: bool
    text: str


async def examine(chosen: Settings) -> list[Finding]:
    """Checks each part; none keeps another from being checked."""
    checks: list[tuple[str, Callable[[Settings], Awaitable[str]]]] = [
        ("database", _database),
        ("zone data", _zone_data),
        ("open files", _open_files),
        ("egress", _egress),
        ("hints", _hints),
    ]
    findings = []
    for part, check in checks:
        try:
            findings.append(Finding(part, True, await check(chosen)))
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            findings.append(Finding(part, False, text))
    return findings


async def _database(chosen: Settings) -> str:
    state = await schema_state(chosen.database_url.get_secret_value())
    if not OLDEST_MAJOR <= major_of(state.server) <= NEWEST_MAJOR:
        raise Broken(f"PostgreSQL {state.server} is not one of {OLDEST_MAJOR} to {NEWEST_MAJOR}")
    if state.missing:
        raise Broken(f"PostgreSQL {state.server}; {', '.join(state.missing)} not applied: run `tocsin migrate`")
    return f"PostgreSQL {state.server}, all migrations applied"


async def _zone_data(chosen: Settings) -> str:
    own = zone_data_version()
    async with open_store(chosen.database_url.get_secret_value()) as store:
        leases = [lease for lease in await store.leases.listing() if lease.expired_at is None]
    others = sorted({lease.zone_data for lease in leases if lease.zone_data} - {own})
    if others:
        raise Broken(f"{own} here, but executors run with {', '.join(others)}: give all the same tzdata")
    return f"{own}, as in all {len(leases)} live executors"


async def _open_files(chosen: Settings) -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = in_flight_limit(chosen)
    text = (
        f"limit {soft} (at most {_number(hard)}); {limit} calls in flight per process,"
        f" {MAX_IN_FLIGHT} per tenant and any number per endpoint, unless a tenant says otherwise"
    )
    if chosen.max_in_flight is not None and limit < chosen.max_in_flight:
        raise Broken(f"{text}, fewer than {_PREFIX}MAX_IN_FLIGHT asks for: raise the limit (ulimit -n)")
    return text


async def _hints(chosen: Settings) -> str:
    if chosen.hints == "off":
        return "off: due runs are found by looks at the queues"
    if chosen.redis_url is None:
        raise Broken(f"{_PREFIX}HINTS is {chosen.hints}, and {_PREFIX}REDIS_URL names no Redis; `up` alone has its own")
    from tocsin.common.hints.redis_index import RedisHints

    index = RedisHints(chosen.redis_url.get_secret_value(), "doctor", SystemClock().now, timeout=_REDIS_SECONDS)
    try:
        return f"{chosen.hints}, by the Redis {await index.version()}; nothing depends on it"
    except Exception as error:
        raise Broken(f"the Redis that {_PREFIX}REDIS_URL names: {error}; runs are found without it") from error
    finally:
        await index.close()


def _number(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)


async def _egress(chosen: Settings) -> str:
    allowed = read_egress(chosen.egress_allow).allowed
    return f"public addresses{f' and {len(allowed)} networks besides' if allowed else ' only'}"
