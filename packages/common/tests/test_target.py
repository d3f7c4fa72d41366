"""What a URL and a header may be: refused when the task is made, or called exactly as stored."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.common.target import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_URL_CHARACTERS,
    Target,
    check_headers,
    check_url,
    parse_target,
)

LABEL_63 = "a" * 63

KEPT = {
    # B54: odd but legal
    "http://bücher.example/": "http://xn--bcher-kva.example/",
    "http://faß.de/": "http://xn--fa-hia.de/",
    "http://a_b.example/": "http://a_b.example/",
    f"http://{LABEL_63}.example:8080/": f"http://{LABEL_63}.example:8080/",
    "http://example.com./": "http://example.com./",
    "HTTP://Example.COM/Path": "http://example.com/Path",
    "http://例え。テスト/": "http://xn--r8jz45g.xn--zckzah/",
    "http://xn--i-7iq.ws/": "http://xn--i-7iq.ws/",
    # normalisation, all of it
    "http://example.com": "http://example.com/",
    "http://example.com?q": "http://example.com/?q",
    "http://example.com:80/": "http://example.com/",
    "https://example.com:443/": "https://example.com/",
    "https://example.com:80/": "https://example.com:80/",
    "http://example.com/ü?x=ä": "http://example.com/%C3%BC?x=%C3%A4",
    'http://example.com/{"a"}|^`<>?a[]=1': "http://example.com/%7B%22a%22%7D%7C%5E%60%3C%3E?a%5B%5D=1",
    # kept as given
    "http://example.com/a/../b/./c//d": "http://example.com/a/../b/./c//d",
    "http://example.com/?": "http://example.com/?",
    "http://example.com/%2f%41?%00": "http://example.com/%2f%41?%00",
    "http://example.com/a@b:c/d?e@f/g?h": "http://example.com/a@b:c/d?e@f/g?h",
    # addresses; whether they may be called is decided at the call
    "http://127.0.0.1:8080/": "http://127.0.0.1:8080/",
    "http://[::1]/": "http://[::1]/",
    "http://[::FFFF:127.0.0.1]:81/": "http://[::ffff:127.0.0.1]:81/",
    "http://1.example/": "http://1.example/",
}

REFUSED = {
    # B54: odd and illegal
    "http://exa mple.com/": "blanks",
    "http:///x": "name a host",
    "http://": "name a host",
    "http://:80/": "name a host",
    "http://..example.com/": "empty labels",
    "http://.example.com/": "empty labels",
    "http://example..com/": "empty labels",
    "http://example.com../": "empty labels",
    "http://./": "empty labels",
    f"http://{LABEL_63}b.example:8080/": "63 characters",
    f"http://{'.'.join([LABEL_63] * 4)}/": "253 characters",
    f"http://{'ü' * 300}/": "253 characters",
    "http://example.com:0/": "port",
    "http://example.com:65536/": "port",
    "http://example.com:/": "port",
    "http://example.com:080/": "port",
    "http://example.com:8O/": "port",
    "http://example.com:-1/": "port",
    "http://example.com:٣/": "port",
    "http://example.com\\@127.0.0.1/": "backslash",
    "http://127.0.0.1#@example.com/": "fragment",
    "http://example.com/#": "fragment",
    "http://user@example.com/": "user name",
    "http://user:word@example.com/": "user name",
    "http://@example.com/": "user name",
    "http://example.com/a\r\nHost: x": "line breaks",
    "http://example.com/\x00": "control",
    "http://example.com/\x7f": "control",
    "http://example.com/\x85": "control",
    "http://example.com/a b": "blanks",
    " http://example.com/": "blanks",
    "http://example.com/\u3000": "blanks",
    "http://example.com/\ud800": "control",
    "http://example.com/%zz": "hexadecimal",
    "http://example.com/%4": "hexadecimal",
    "http://ex%61mple.com/": "label",
    "ftp://example.com/": "http://",
    "//example.com/x": "http://",
    "/x": "http://",
    "": "http://",
    "http:/example.com/": "http://",
    "http:example.com": "http://",
    "javascript://example.com/": "http://",
    "http://[fe80::1%25eth0]/": "zone",
    "http://[::1/": "brackets",
    "http://::1/": "port",
    "http://a[::1]/": "brackets",
    "http://[::1]x/": "brackets",
    "http://[example.com]/": "IPv6",
    "http://[]/": "IPv6",
    "http://[127.0.0.1]/": "IPv6",
    "http://-a.example/": "label",
    "http://a-.example/": "label",
    "http://a,b.example/": "label",
    "http://☃.example/": "IDNA",
    "http://a\u200d.example/": "IDNA",
    "http://" + "a" * MAX_URL_CHARACTERS: "4,096",
    "http://example.com/" + "ü" * 1_000: "percent-encoded",
    # B51: numbers that some resolver takes for 127.0.0.1
    "http://2130706433/": "numeric host",
    "http://0x7f000001/": "numeric host",
    "http://0X7F.0.0.1/": "numeric host",
    "http://127.1/": "numeric host",
    "http://0177.0.0.1/": "numeric host",
    "http://127.0.0.01/": "numeric host",
    "http://0/": "numeric host",
    "http://0x/": "numeric host",
    "http://127.0.0.1./": "numeric host",
    "http://127.0.0.256/": "numeric host",
    "http://1.2.3.4.5/": "numeric host",
    "http://example.1/": "numeric host",
    "http://\uff11\uff12\uff17.0.0.1/": "numeric host",
    "http://\u2460\u2461\u2466.0.0.1/": "numeric host",
    "http://127\u30020\u30020\u30021/": "numeric host",
    "http://127.0.0.\u0661/": "IDNA",
}


@pytest.mark.parametrize(("given_url", "stored"), KEPT.items())
def test_odd_but_legal_urls_are_stored_in_one_form(given_url: str, stored: str) -> None:
    assert check_url(given_url) == stored
    assert check_url(stored) == stored
    assert parse_target(stored).url == stored


@pytest.mark.parametrize(("given_url", "rule"), REFUSED.items(), ids=lambda value: ascii(value)[:40])
def test_illegal_urls_are_refused_with_their_rule(given_url: str, rule: str) -> None:
    with pytest.raises(ValueError) as refusal:
        check_url(given_url)
    sentence = str(refusal.value)
    assert rule in sentence
    assert "\n" not in sentence
    assert type(refusal.value) is ValueError


def test_a_library_alone_would_let_the_traps_through() -> None:
    def naive(text: str) -> str:
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("no URL")
        return parts.geturl()

    def refuses(text: str) -> bool:
        try:
            naive(text)
        except ValueError:
            return True
        return False

    assert sum(not refuses(text) for text in REFUSED) > 40


def test_a_target_has_the_parts_that_a_call_needs() -> None:
    assert parse_target("https://api.example:8443/a?b=c") == Target("https", "api.example", 8443, "/a?b=c", is_ip=False)
    address = parse_target("http://[2001:DB8::1]/")
    assert address == Target("http", "2001:db8::1", 80, "/", is_ip=True)
    assert address.authority == "[2001:db8::1]"
    assert parse_target("http://[::1]:8080/").authority == "[::1]:8080"
    assert parse_target("https://api.example/").authority == "api.example"


@given(
    st.text(alphabet=st.sampled_from("ab1.:@/?#[]%\\-_ü１。 \t\r0xF"), max_size=30).map(lambda text: f"http://{text}")
    | st.text(max_size=60)
)
def test_whatever_is_kept_means_the_same_to_another_parser(text: str) -> None:
    try:
        stored = check_url(text)
    except ValueError:
        return
    target, other = parse_target(stored), urlsplit(stored)
    assert stored.isascii()
    assert check_url(stored) == stored
    assert (other.scheme, other.hostname) == (target.scheme, target.host)
    assert other.username is None
    assert (other.port or {"http": 80, "https": 443}[other.scheme]) == target.port


def test_headers_are_kept_as_given() -> None:
    headers = {"X-Token": " abc ", "accept": "text/plain", "X-Empty": "", "X-Latin": "caf\xe9"}
    assert check_headers(headers) == {**headers, "X-Token": "abc"}


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "Connection",
        "keep-alive",
        "TE",
        "Trailer",
        "Upgrade",
        "Expect",
        "Idempotency-Key",
        "traceparent",
        "Tocsin-Fence",
        "tocsin-anything",
        "webhook-signature",
    ],
)
def test_reserved_headers_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="reserved"):
        check_headers({name: "x"})


@pytest.mark.parametrize("name", ["", " ", "a b", "a:", "a\r\nb", "ü", "a\x00", "(a)"])
def test_header_names_must_be_tokens(name: str) -> None:
    with pytest.raises(ValueError, match="token"):
        check_headers({name: "x"})


@pytest.mark.parametrize("value", ["a\r\nX: b", "a\nb", "a\x00", "\x7f", "a\tb", "\x85"])
def test_b48_header_values_have_no_control_characters(value: str) -> None:
    with pytest.raises(ValueError, match="control"):
        check_headers({"X-A": value})


def test_header_values_must_be_latin_1() -> None:
    with pytest.raises(ValueError, match="Latin-1"):
        check_headers({"X-A": "\u20ac"})


def test_headers_that_differ_by_case_are_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        check_headers({"X-A": "1", "x-a": "2"})


def test_headers_have_limits() -> None:
    assert len(check_headers({f"X-{n}": "" for n in range(MAX_HEADERS)})) == MAX_HEADERS
    with pytest.raises(ValueError, match="at most 50"):
        check_headers({f"X-{n}": "" for n in range(MAX_HEADERS + 1)})
    room = MAX_HEADER_BYTES - len("X-A") - 4
    check_headers({"X-A": "v" * room})
    with pytest.raises(ValueError, match="16384 bytes"):
        check_headers({"X-A": "v" * (room + 1)})
