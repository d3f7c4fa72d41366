"""What an operator sets: environment variables with the prefix `TOCSIN_`, each with its unit and default."""

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

_PORT = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:(?P<port>[0-9]{0,5}))?")
"""A host of a libpq URL, which may name several, with its port."""


class Settings(BaseSettings):
    """All settings of all processes. `tocsin doctor` prints them with their source.

    A variable that is empty counts as not set. No error repeats a value: it may hold a password.
    """

    model_config = SettingsConfigDict(
        env_prefix="TOCSIN_", env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    database_url: SecretStr = Field(
        default=SecretStr("postgresql://localhost/tocsin"), description="PostgreSQL 15 to 18, as a libpq URL"
    )
    hints: Literal["off", "on", "auto"] = Field(
        default="off", description="whether due runs are found by ids from Redis, too; auto: while that is faster"
    )
    redis_url: SecretStr | None = Field(
        default=None, description="the hint index: redis://, rediss:// (TLS) or unix://; `up` has one of its own"
    )
    data_dir: Path = Field(default=Path(".tocsin"), description="where `up` keeps its database")
    api_host: str = "127.0.0.1"
    api_port: Annotated[int, Field(ge=1, le=65_535)] = 8080
    dashboard_port: Annotated[int, Field(ge=1, le=65_535)] = 8265
    cell: str = Field(default="shared", description="the cell that `tocsin engine` serves")
    lease_ttl_seconds: Annotated[float, Field(ge=1, le=120)] = Field(
        default=10.0, description="how long a silent executor is believed to live"
    )
    trust_margin_seconds: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="calls stop this long before the lease can end; a fifth of the ttl, and always less than half",
    )
    max_in_flight: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="calls in flight per process; 10,000, or the open-file limit less 1,000"
    )
    transport: Literal["lean", "aiohttp"] = Field(default="lean", description="what endpoints are called with")
    egress_allow: Annotated[str, NoDecode] = Field(
        default="", description="CIDR[:port], comma-separated, that may be called though not public"
    )
    dns_servers: Annotated[str, NoDecode] = Field(
        default="", description="host[:port], comma-separated; the system's where empty"
    )
    retention_days: Annotated[int, Field(ge=1, le=3_650)] = Field(default=30, description="how long history is kept")
    partition_days_ahead: Annotated[int, Field(ge=2, le=60)] = 7

    @field_validator("database_url")
    @classmethod
    def _names_a_postgresql_server(cls, url: SecretStr) -> SecretStr:
        if not _names_a_server(url.get_secret_value()):
            raise PydanticCustomError("database_url", "must be like postgresql://user:password@host:5432/name")
        if not _has_a_plain_place(url.get_secret_value()):
            raise PydanticCustomError(
                "database_url",
                "must have no @ but the one before the host: write @ : / ? # in a user or password "
                "as %40 %3A %2F %3F %23",
            )
        return url

    @field_validator("redis_url")
    @classmethod
    def _names_a_redis(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not _names_a_redis_server(url.get_secret_value()):
            raise PydanticCustomError(
                "redis_url",
                "must be like redis://user:password@host:6379/0, rediss://... or unix:///path; "
                "write @ : / ? # in a user or password as %40 %3A %2F %3F %23",
            )
        return url

    @field_validator("trust_margin_seconds")
    @classmethod
    def _margin_leaves_time_to_work(cls, margin: float | None, info: ValidationInfo) -> float | None:
        ttl: float | None = info.data.get("lease_ttl_seconds")  # missing if it was refused itself
        if margin is not None and ttl is not None and not margin < ttl / 2:
            raise PydanticCustomError(
                "trust_margin", "must be less than half of TOCSIN_LEASE_TTL_SECONDS, which is {ttl} s", {"ttl": ttl}
            )
        return margin

    @property
    def trust_margin(self) -> float:
        """Seconds before the lease's end after which no call starts: 2 s at a ttl of 10 s."""
        return self.lease_ttl_seconds / 5 if self.trust_margin_seconds is None else self.trust_margin_seconds


def _names_a_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:  # its text repeats the URL
        return False
    ports = [_PORT.fullmatch(place) for place in parts.netloc.rpartition("@")[2].split(",")]
    return parts.scheme in ("postgresql", "postgres") and all(
        found is not None and 1 <= int(found["port"] or 1) <= 65_535 for found in ports
    )


def _names_a_redis_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_server = parts.scheme in ("redis", "rediss") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # its text repeats the URL
        return False
    is_socket = parts.scheme == "unix" and parts.path.startswith("/")
    return (is_server or is_socket) and _has_a_plain_place(url)


def _has_a_plain_place(url: str) -> bool:
    """Whether the part before the host ends where the URL says so: a password with a `/` in it would end it too early,
    and what is left of it would pass for the name of a database, which is shown."""
    return url.count("@") == urlsplit(url).netloc.count("@") <= 1
