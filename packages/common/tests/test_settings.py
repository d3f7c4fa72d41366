"""Settings that cannot work together are refused when they are read."""

from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr, ValidationError, ValidationInfo
from pydantic_settings import SettingsConfigDict

from tocsin.common.settings import Settings


class NoRelation(Settings):
    """Broken: margin and ttl are looked at one by one."""

    @classmethod
    def _margin_leaves_time_to_work(cls, margin: float | None, info: ValidationInfo) -> float | None:
        return margin


def refusal(settings: type[Settings], ttl: float, margin: float | None) -> str:
    """The sentence with which these are refused; empty if they are not."""
    try:
        settings(lease_ttl_seconds=ttl, trust_margin_seconds=margin)
    except ValidationError as error:
        (found,) = error.errors()
        return f"{found['loc'][0]}: {found['msg']}"
    return ""


@pytest.mark.parametrize(("ttl", "margin"), [(10, 5), (10, 10), (10, 60), (1, 0.5), (10, float("inf"))])
def test_a_margin_of_half_the_ttl_or_more_is_refused(ttl: float, margin: float) -> None:
    said = f"must be less than half of TOCSIN_LEASE_TTL_SECONDS, which is {float(ttl)} s"
    assert refusal(Settings, ttl, margin) == f"trust_margin_seconds: {said}"
    assert refusal(NoRelation, ttl, margin) == ""


@pytest.mark.parametrize(("ttl", "margin"), [(10, 4.9), (120, 2), (1, None), (10, None)])
def test_a_smaller_margin_is_taken(ttl: float, margin: float | None) -> None:
    assert refusal(Settings, ttl, margin) == ""
    made = Settings(lease_ttl_seconds=ttl, trust_margin_seconds=margin)
    assert made.trust_margin == (ttl / 5 if margin is None else margin)


def test_a_ttl_that_is_refused_itself_is_all_that_is_said() -> None:
    assert refusal(Settings, 0, 5).startswith("lease_ttl_seconds: ")


def test_the_environment_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_TRUST_MARGIN_SECONDS", "5")
    with pytest.raises(ValidationError, match="less than half"):
        Settings()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://localhost/tocsin",
        "postgres://u:p%40ss@db.example.com:5432/name?sslmode=require",
        "postgresql:///tocsin?host=/var/run/postgresql",
        "postgresql://[::1]:5433/tocsin",
        "postgresql://one:5432,two:5433/tocsin",
        "postgresql://u%40server:p@one,two/tocsin?user=u%40server",
        "postgresql://host:/tocsin",
    ],
)
def test_a_database_is_named_as_libpq_does(url: str) -> None:
    assert Settings(database_url=SecretStr(url)).database_url.get_secret_value() == url


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "localhost:5432", "mysql://h/x", "postgresql://hush@h:port/x", "postgresql://h:65536/x",
     "postgresql://h:0/x", "postgresql://a:b:c/x", "postgresql://[::1/x"],
)  # fmt: skip
def test_what_names_no_database_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(database_url=SecretStr(url))
    [found] = refused.value.errors(include_url=False, include_input=False)
    assert (found["loc"], found["type"]) == (("database_url",), "database_url")
    assert "hush" not in found["msg"]


class ShowsWhatFollowsTheHost(Settings):
    """Broken: where user and password end is not looked at."""

    @classmethod
    def _names_a_postgresql_server(cls, url: SecretStr) -> SecretStr:
        return url


@pytest.mark.parametrize(
    "url",
    ["postgresql://user:12/hush@host:5432/db", "postgresql://user:12?hush@host:5432/db",
     "postgresql://user:12#hush@host:5432/db", "postgresql://user:hu@sh@host:5432/db",
     "postgresql://user:p@host/db?password=hu@sh"],
)  # fmt: skip
def test_a_password_that_ends_before_the_host_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(
        ValidationError, match=r"must have no @ but the one before the host: write .* as %40 "
    ) as refused:
        Settings(database_url=SecretStr(url))
    assert not any(word in str(refused.value) for word in ("hush", "hu@sh", "user:"))
    assert ShowsWhatFollowsTheHost(database_url=SecretStr(url)).database_url.get_secret_value() == url


class TellsItsInput(Settings):
    """Broken: errors repeat what they refuse."""

    model_config = SettingsConfigDict(hide_input_in_errors=False)


class TellsWhatWentWrong(Settings):
    """Broken: another's sentence about the URL is passed on, with the URL in it."""

    @classmethod
    def _names_a_postgresql_server(cls, url: SecretStr) -> SecretStr:
        urlsplit(url.get_secret_value())
        return url


TYPING_ERROR = "postgresq://user:hunter2@h/db"
FULL_WIDTH_HASH = "postgresql://user:hun\uff03ter2@h/db"


def leaked(settings: type[Settings]) -> str:
    """What the refusal of this environment tells of the password."""
    with pytest.raises(ValidationError) as refused:
        settings()
    error: BaseException | None = refused.value
    told = ""
    while error is not None:
        told += str(error) + repr(error)
        error = error.__cause__ or error.__context__
    return " ".join(part for part in ("hun", "ter2") if part in told)


@pytest.mark.parametrize("url", [TYPING_ERROR, FULL_WIDTH_HASH])
def test_no_error_tells_the_password(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", url)
    assert leaked(Settings) == ""


@pytest.mark.parametrize(("broken", "url"), [(TellsItsInput, TYPING_ERROR), (TellsWhatWentWrong, FULL_WIDTH_HASH)])
def test_an_error_that_tells_the_password_is_caught(
    monkeypatch: pytest.MonkeyPatch, broken: type[Settings], url: str
) -> None:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", url)
    assert leaked(broken) == "hun ter2"


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    default = Settings()
    for field in Settings.model_fields:
        monkeypatch.setenv(f"TOCSIN_{field.upper()}", "")
    assert Settings() == default
    assert Settings().model_fields_set == set()


@pytest.mark.parametrize(
    "url",
    ["redis://h", "redis://:p%40ss@h:6379/0", "rediss://u:p@h:6380/1?ssl_cert_reqs=none", "unix:///run/redis.sock"],
)
def test_a_redis_is_named_by_its_url(url: str) -> None:
    redis_url = Settings(hints="auto", redis_url=SecretStr(url)).redis_url
    assert redis_url is not None
    assert redis_url.get_secret_value() == url


@pytest.mark.parametrize(
    "url",
    ["nonsense", "h:6379", "http://h/", "redis://", "redis://:hush@h:port/0", "redis://:hu/sh@h:1/0", "unix:sock"],
)
def test_what_names_no_redis_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(redis_url=SecretStr(url))
    [found] = refused.value.errors(include_url=False, include_input=False)
    assert (found["loc"], found["type"]) == (("redis_url",), "redis_url")
    assert "hush" not in str(refused.value)
