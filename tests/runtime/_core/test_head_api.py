"""The secret in the headers of a request."""

from __future__ import annotations

from runtime._core.head_api import has_secret, with_secret


def received(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


def test_a_users_authorization_stays_and_the_secret_travels_beside_it() -> None:
    headers = with_secret("s", {"authorization": "Basic abc", "X-Team": "a"})
    assert headers["authorization"] == "Basic abc"
    assert headers["X-Team"] == "a"
    assert "Authorization" not in headers
    assert has_secret("s", received(headers))


def test_a_header_under_both_names_is_enough_under_one() -> None:
    assert has_secret("s", received(with_secret("s", {})))
    assert has_secret("s", received(with_secret("s", {"X-Ray-Authorization": "Bearer mine"})))
    assert not has_secret("s", received(with_secret("other", {})))


def test_no_secret_is_no_header() -> None:
    assert with_secret("", {"X-Team": "a"}) == {"X-Team": "a"}
    assert not has_secret("s", [])
    assert not has_secret("s", [(b"x-team", b"Bearer s")])
