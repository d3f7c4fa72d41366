"""Signatures that any Standard Webhooks library verifies."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tocsin.common.clock import SystemClock
from tocsin.executor.signature import Signer

RUN = "01890a5d-ac96-774b-bcce-b302099a8057"
OLD = "whsec_" + base64.b64encode(b"old key, old key, old key").decode()
NEW = "whsec_" + base64.b64encode(b"new key, new key, new key").decode()
BODY = '{"a": "ü"}'.encode()


def test_the_published_example_comes_out() -> None:
    """The example of the Standard Webhooks specification's libraries: same secret, id, time and body."""
    signer = Signer(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
    now = datetime.fromtimestamp(1_614_265_330, UTC)
    headers = dict(signer.headers(RUN, now, b'{"test": 2432232314}'))
    theirs = Webhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").sign(RUN, now, '{"test": 2432232314}')
    assert headers["webhook-signature"] == theirs
    assert headers["webhook-timestamp"] == "1614265330"
    assert headers["webhook-id"] == RUN


@pytest.mark.parametrize("secrets", [[NEW], [OLD, NEW], [NEW, OLD]])
def test_a_receiver_with_any_of_the_keys_verifies(secrets: list[str]) -> None:
    headers = dict(Signer(secrets).headers(RUN, SystemClock().now(), BODY))
    for secret in secrets:
        assert Webhook(secret).verify(BODY, headers) == {"a": "ü"}
    assert len(headers["webhook-signature"].split(" ")) == len(secrets)


def test_a_receiver_refuses_another_key_body_or_time() -> None:
    now = SystemClock().now()
    headers = dict(Signer([NEW]).headers(RUN, now, BODY))
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(b'{"a": "u"}', headers)
    old = dict(Signer([NEW]).headers(RUN, now - timedelta(minutes=6), BODY))
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY, old)


def test_any_bytes_can_be_signed() -> None:
    assert dict(Signer([NEW]).headers(RUN, SystemClock().now(), b"\xff\x00\xfe"))["webhook-signature"]


def test_without_a_key_nothing_is_claimed() -> None:
    assert Signer([]).headers(RUN, SystemClock().now(), BODY) == ()


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_%%%", "whsec_ü", "not base64!"])
def test_a_secret_that_is_none_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="base64"):
        Signer([secret])


def test_unpadded_secrets_are_taken() -> None:
    padded = "whsec_" + base64.b64encode(b"1234567").decode()
    now = SystemClock().now()
    assert Signer([padded]).headers(RUN, now, BODY) == Signer([padded.rstrip("=")]).headers(RUN, now, BODY)
